"""A `Calibration` from a recorded run: the pieces, put together and judged."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rlinsight.analyzers.device_time.occupancy import admissions
from rlinsight.analyzers.device_time.window import choose_window
from rlinsight.analyzers.simulate.calibration import Calibration, Decode, Uncertainty
from rlinsight.analyzers.simulate.coarse import calibrate_metrics
from rlinsight.analyzers.simulate.fit_costs import driver_spans, fit_costs
from rlinsight.analyzers.simulate.fit_decode import fit_decode, fit_lengths
from rlinsight.analyzers.simulate.fit_training import fit_training, step_table
from rlinsight.analyzers.simulate.fit_validations import validation_seconds
from rlinsight.analyzers.simulate.knobs import Knobs, knobs_of_run
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.read_config import unmodelled
from rlinsight.analyzers.simulate.validations import with_validations
from rlinsight.analyzers.tables import Tables, read_tables
from rlinsight.errors import TraceError
from rlinsight.trace.reader import Trace

Window = tuple[int, int]

_FOREVER = (1 << 63) - 1
#: A fit below this explains too little to be passed over in silence.
_POOR = 0.5


def calibrate(trace: Trace, window: Window | None = None) -> Calibration:
    """Return the calibration of `trace` over `window`, or over its steady part.

    Raises TraceError where neither requests with samples and steps nor metrics are recorded.
    """
    tables = read_tables(trace)
    config = trace.manifest.config
    knobs = knobs_of_run(trace.mode, config, trace.topology)
    if tables.requests.is_empty() or tables.samples.is_empty() or tables.steps.is_empty():
        if tables.metrics.is_empty():
            raise TraceError(
                "expected a trace with requests, samples and training steps, or the framework's "
                "metrics of them, to calibrate a simulation; found neither"
            )
        found = calibrate_metrics(tables.metrics, knobs, trace.manifest.run_id)
    else:
        info = choose_window(tables, trace.time_range, window)
        bounds = (info.start_ns, info.end_ns)
        found = _from_tables(tables, bounds, knobs, trace.manifest.run_id)
    return replace(found, notes=(*found.notes, *unmodelled(config)))


def _from_tables(tables: Tables, window: Window, knobs: Knobs, run_id: str | None) -> Calibration:
    steps = tables.steps.filter(pl.col("start_ns").is_between(*window))
    table = step_table(tables.spans, steps, tables.samples)
    trained = fit_training(table, knobs)
    decoded = fit_decode(_training_requests(tables), knobs.max_num_seqs)
    samples = _steady(tables.samples, window)
    lengths = fit_lengths(samples, knobs.max_response_length)
    if trained is None or decoded is None or lengths is None:
        raise TraceError(
            "expected training steps with known tokens, and requests with first token and length, "
            "to calibrate a simulation; the steady part of this trace has none"
        )
    training, training_error, training_fits = trained
    decode, decode_error, decode_fits = decoded
    costs, cost_fits = fit_costs(tables, table, window, knobs)
    found = (*decode_fits, *training_fits, *cost_fits)
    prompts = samples["prompt_tokens"].mean()
    calibration = Calibration(
        knobs=knobs,
        lengths=lengths,
        validation_lengths=_validation_lengths(tables, lengths),
        prompt_tokens=float(prompts) if isinstance(prompts, float) else 0.0,
        decode=decode,
        training=training,
        costs=costs,
        uncertainty=Uncertainty(decode_error, training_error),
        fits=tuple(fit for fit in found if fit.observations),
        run_id=run_id,
        versions=len(tables.versions),
        notes=_notes(decode, training.r2, lengths),
    )
    return with_validations(calibration, validation_seconds(driver_spans(tables), tables.steps))


def _steady(samples: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return the samples used in `window`, since lengths drift; all where none is known to be."""
    used = samples.filter(pl.col("consumed_ns").is_between(*window))
    return samples if used.is_empty() else used


def _training_requests(tables: Tables) -> pl.DataFrame:
    """Return the training requests outside of validations, all where those are less than half.

    More replicas than usual generate in a validation, which changes the speed where they share
    a host. One that was not ended goes on to the recording's end. A request that was parked at a
    gate counts from its admission.
    """
    spans = tables.spans.filter(pl.col("activity") == "validate").sort("start_ns")
    spans = spans.with_columns(pl.col("end_ns").fill_null(pl.lit(_FOREVER)))
    ended = _admitted(tables).filter(pl.col("end_ns").is_not_null()).sort("end_ns")
    requests = ended.filter(~pl.col("validate").fill_null(value=False))
    if requests.is_empty():
        return ended
    apart = requests.join_asof(
        spans.select(began="start_ns", ended="end_ns"), left_on="end_ns", right_on="began"
    ).filter(pl.col("ended").is_null() | (pl.col("ended") <= pl.col("submit_ns")))
    return apart if 2 * len(apart) >= len(requests) else requests


def _admitted(tables: Tables) -> pl.DataFrame:
    parked = admissions(tables).collect()
    joined = tables.requests.join(parked, on=["request_id", "lane", "submit_ns"], how="left")
    return joined.with_columns(submit_ns=pl.coalesce("admitted_ns", "submit_ns"))


def _validation_lengths(tables: Tables, lengths: LengthModel) -> LengthModel:
    ended = tables.requests.filter(
        pl.col("validate")
        & pl.col("response_tokens").is_not_null()
        & pl.col("finish").cast(pl.String).is_in(["stop", "length"])
    )["response_tokens"].to_list()
    return LengthModel(tuple((tokens,) for tokens in ended), lengths.cap) if ended else lengths


def _notes(decode: Decode, training_r2: float | None, lengths: LengthModel) -> tuple[str, ...]:
    notes = []
    if decode.r2 is not None and decode.r2 < _POOR:
        notes.append(
            f"concurrency explains {decode.r2:.0%} of the durations of requests: something else "
            "sets the speed of decoding too"
        )
    if training_r2 is not None and training_r2 < _POOR:
        notes.append(
            f"tokens explain {training_r2:.0%} of the training time: its variation is drawn as "
            "recorded"
        )
    if lengths.capped_share > 0:
        notes.append(
            f"{lengths.capped_share:.1%} of the responses were cut at {lengths.cap} tokens: "
            "beyond that, lengths are extrapolated"
        )
    return tuple(notes)
