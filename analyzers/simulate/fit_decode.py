"""Decode speed against concurrency, and recorded response lengths, from the requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.simulate.calibration import Decode
from rlinsight.analyzers.simulate.fit import explained, standard_error
from rlinsight.analyzers.simulate.fits import Fit, constrained, median_error, of_median, together
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.speed import fit_speed, fitted_seconds, times_beside

Array = npt.NDArray[np.float64]

#: Fewer hand-overs of a slot than this say nothing about their typical time.
_FEW: Final = 8
_START: Final = "decode.start_s"
_ARRIVAL: Final = "decode.arrival_s"


def decoding(requests: pl.DataFrame) -> list[tuple[Array, Array, Array]]:
    """Return (first token, end, tokens after the first) of what decoded, for each replica."""
    ran = requests.filter(
        pl.col("end_ns").is_not_null()
        & pl.col("first_token_ns").is_not_null()
        & (pl.col("end_ns") > pl.col("first_token_ns"))
        & (pl.col("response_tokens") > 1)
    )
    return [
        (
            lane["first_token_ns"].to_numpy() / 1e9,
            lane["end_ns"].to_numpy() / 1e9,
            lane["response_tokens"].to_numpy() - 1.0,
        )
        for lane in ran.partition_by("lane", maintain_order=True)
    ]


def fit_decode(
    requests: pl.DataFrame, capacity: int
) -> tuple[Decode, float, tuple[Fit, ...]] | None:
    """Return the speed that fits all responses best, its relative standard error, and its fits.

    `capacity` is how many responses a replica can run; see `speed` for the fit. None where no
    request tells.
    """
    timed = requests["first_token_ns"].is_not_null().any()
    requests = requests if timed else _from_submission(requests, capacity)
    lanes = decoding(requests)
    if not lanes:
        return None
    times = times_beside(lanes)
    speed: tuple[Fit, ...] = fit_speed(times)
    base, slope, stall = (fit.value for fit in speed)
    fitted = fitted_seconds(times, base, slope, stall)
    starts = start_times(requests, capacity, noticed_s=stall if timed else 0.0)
    if not timed:  # what is no decoding is the start then
        starts = replace(speed[2], name="decode.start_s"), starts[1]
        speed = speed[:2]
        stall = 0.0
    running = times.mean_running
    decode = Decode(
        base_s=base,
        per_running_s=slope,
        start_s=starts[0].value,
        arrival_s=starts[1].value,
        end_s=stall,
        max_running=float(np.quantile(running, 0.99)),
        mean_running=float(running @ times.seconds / times.seconds.sum()),
        r2=explained(times.seconds, fitted),
        requests=len(times.tokens),
    )
    # Long requests decide how sure the speed is, not how late short ones are noticed.
    long = times.tokens >= np.median(times.tokens)
    return decode, standard_error(times.seconds[long] / fitted[long]), (*speed, *starts)


def _from_submission(requests: pl.DataFrame, capacity: int) -> pl.DataFrame:
    """Return the requests that found a free slot, as if their first token came at once.

    For recordings without first tokens. Time from submission to the end then holds the start.
    """
    ended = requests.filter(pl.col("end_ns").is_not_null()).with_columns(
        first_token_ns=pl.col("submit_ns")
    )
    slots = _with_slots_everywhere(ended, capacity)
    return slots.filter(pl.col("freed_ns") <= pl.col("submit_ns"))


def start_times(requests: pl.DataFrame, capacity: int, noticed_s: float = 0.0) -> tuple[Fit, Fit]:
    """Return how long a start holds a slot, and how much longer a request takes to get there.

    Where requests queue, the j-th to start on a replica with c slots starts at the (j-c)-th end:
    from there to its first token it holds the slot (median). Requests that found a free slot
    take longer from submission to first token; the difference is transport, which holds none.
    Where none queued, all of it is taken to hold the slot. `noticed_s` is how long after its last
    token an end was noticed: the slot was free by then.

    Worked example: one slot; a ends at 5 s, b, submitted at 1 s, has its first token at 5.2 s:
    0.2 s hold the slot.
    """
    known = requests.filter(pl.col("first_token_ns").is_not_null() & pl.col("end_ns").is_not_null())
    starts = _with_slots_everywhere(known, capacity).with_columns(
        freed_ns=pl.col("freed_ns") - round(noticed_s * 1e9)
    )
    queued = starts.filter(pl.col("freed_ns") > pl.col("submit_ns"))
    free = starts.filter(pl.col("freed_ns") <= pl.col("submit_ns"))
    whole = ((free["first_token_ns"] - free["submit_ns"]) / 1e9).to_numpy()
    if len(queued) < _FEW:
        return of_median(_START, whole), Fit(_ARRIVAL, 0.0, 0.0, None, 0)
    held = of_median(_START, ((queued["first_token_ns"] - queued["freed_ns"]) / 1e9).to_numpy())
    if not len(whole):
        return held, Fit(_ARRIVAL, 0.0, 0.0, None, 0)
    error = together(held.error, median_error(whole))
    transport = float(np.median(whole)) - held.value
    return held, constrained(_ARRIVAL, transport, error, len(whole))


def _with_slots_everywhere(requests: pl.DataFrame, capacity: int) -> pl.DataFrame:
    lanes = requests.partition_by("lane", maintain_order=True)
    if not lanes:
        return requests.with_columns(freed_ns=pl.lit(0, pl.Int64))
    return pl.concat([_with_slots(lane, capacity) for lane in lanes])


def _with_slots(lane: pl.DataFrame, capacity: int) -> pl.DataFrame:
    """Add when the slot of each request was freed: the end that left room for it."""
    ordered = lane.sort("first_token_ns")
    ended = np.sort(ordered["end_ns"].to_numpy())
    freed = np.concatenate(
        [np.zeros(min(capacity, len(ended)), np.int64), ended[: -capacity or None]]
    )
    return ordered.with_columns(freed_ns=pl.Series(freed[: len(ended)]))


def fit_lengths(samples: pl.DataFrame, cap: int) -> LengthModel | None:
    """Return the recorded groups of the most frequent size."""
    known = samples.filter(pl.col("response_tokens").is_not_null()).with_columns(
        group=pl.coalesce("group_uid", "sample_uid")
    )
    groups = known.group_by("group", maintain_order=True).agg("response_tokens")
    if groups.is_empty():
        return None
    sizes = groups.with_columns(n=pl.col("response_tokens").list.len())
    size = sizes["n"].mode().max()
    chosen = sizes.filter(pl.col("n") == size)["response_tokens"].to_list()
    return LengthModel(tuple(tuple(sorted(group)) for group in chosen), cap)
