"""What a simulation knows of a run: lengths, speeds and costs, with how well they fit.

A `Calibration` is plain data: it goes to JSON and back, so that a run can be asked about
long after its trace is gone. docs/simulator.md describes every field.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from rlinsight.analyzers.simulate.fits import Fit
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.errors import TraceError

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.trace.reader import Trace

CALIBRATION_SCHEMA_VERSION: Final = 2

#: Constants of verl 0.9.1, in seconds: the poll of the replay buffer, the wait of a client
#: after an aborted attempt, and the poll of the rollouter's monitor.
POLL_S: Final = 2.0
RESUME_S: Final = 1.0
MONITOR_S: Final = 10.0


@dataclass(frozen=True)
class Decode:
    """Seconds per token of one response with n running: `base_s + per_running_s * n`.

    `start_s` is how long a start (prefill) holds a slot before the first token; `arrival_s` is
    the transport before, and `end_s` from the last token to the response, which hold none.
    `max_running` is the highest concurrency seen on one replica, `mean_running` the mean over
    responses. `r2` is the share of the
    variance of request durations that the fit explains, None where it cannot be told.
    """

    base_s: float
    per_running_s: float
    start_s: float
    max_running: float
    arrival_s: float = 0.0
    end_s: float = 0.0
    mean_running: float = 0.0
    r2: float | None = None
    requests: int = 0


@dataclass(frozen=True)
class Training:
    """Seconds of an update: `fixed_s * o + per_micro_batch_s * m + per_token_s * tokens`.

    o is its number of optimizer steps (mini-batches), m the number of micro-batches of a rank
    that a token budget makes, 0 without one.
    `residuals` are measured / fitted, for drawing; their mean is 1, but where a constraint binds.
    `tokens` is the range seen.
    """

    fixed_s: float
    per_token_s: float
    per_micro_batch_s: float = 0.0
    residuals: tuple[float, ...] = ()
    tokens: tuple[float, float] = (0.0, 0.0)
    r2: float | None = None
    updates: int = 0


@dataclass(frozen=True)
class Costs:
    """Times of everything else, in seconds, 0 where the run had none of it.

    sync_s: a weight sync, gates closed; replica_sync_s: the part in which a replica loads
    dispatch_s: handing a batch to the rollouters, in the trainer; handout_s: the rollouter's own
      time per prompt; submit_s: from either to a replica, beside submit_each_s of the client's
      work on a prompt, which all that it was handed share
    reward_s: from a response's last token to a usable sample
    driver_update_s, driver_step_s: the driver's own time per update, and between two steps
    validation_before_s, validation_after_s: around the generation of a validation;
      validation_rest_s: what its generation takes beyond the simulated one; validation_first_s:
      how much longer the first one of a run takes; lend_before_s,
      lend_after_s: around that, where fully_async lends the trainer's devices to it
    switch_to_rollout_s, switch_to_trainer_s: of hybrid replicas; checkpoint_s: one checkpoint
    poll_s, resume_s, monitor_s: the waits of verl that are constants
    lost_resume_share: share of pauses that a sync did not end (the monitor did, later)
    """

    sync_s: float = 0.0
    replica_sync_s: float = 0.0
    dispatch_s: float = 0.0
    handout_s: float = 0.0
    submit_s: float = 0.0
    submit_each_s: float = 0.0
    reward_s: float = 0.0
    driver_update_s: float = 0.0
    driver_step_s: float = 0.0
    validation_before_s: float = 0.0
    validation_after_s: float = 0.0
    validation_rest_s: float = 0.0
    validation_first_s: float = 0.0
    lend_before_s: float = 0.0
    lend_after_s: float = 0.0
    validation_requests: int = 0
    switch_to_rollout_s: float = 0.0
    switch_to_trainer_s: float = 0.0
    checkpoint_s: float = 0.0
    poll_s: float = POLL_S
    resume_s: float = RESUME_S
    monitor_s: float = MONITOR_S
    lost_resume_share: float = 0.0


@dataclass(frozen=True)
class Uncertainty:
    """Relative standard errors of the two speeds; every seed draws its own values."""

    decode: float = 0.0
    training: float = 0.0

    def draw(self, rng: np.random.Generator) -> dict[str, float]:
        """Return a factor for each, about 1."""
        names = [item.name for item in fields(self)]
        return {name: float(np.exp(rng.normal(0.0, getattr(self, name)))) for name in names}


@dataclass(frozen=True)
class Calibration:
    """Everything that a simulation needs of one run; `knobs` are the run's own settings.

    `source` is `trace` where intervals were recorded and `metrics` where only the framework's
    figures were, which makes all of it coarser; `fits` say how well each number is known, `notes`
    what was assumed.
    """

    knobs: Knobs
    lengths: LengthModel
    validation_lengths: LengthModel
    prompt_tokens: float
    decode: Decode
    training: Training
    costs: Costs
    uncertainty: Uncertainty = Uncertainty()
    fits: tuple[Fit, ...] = ()
    source: Literal["trace", "metrics"] = "trace"
    run_id: str | None = None
    versions: int = 0
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=CALIBRATION_SCHEMA_VERSION)

    @classmethod
    def from_trace(cls, trace: Trace) -> Calibration:
        """Return the calibration of a recorded run, from its steady part.

        Raises TraceError for a trace that holds neither requests and training steps nor the
        framework's metrics of them.
        """
        from rlinsight.analyzers.simulate.calibrate import calibrate

        return calibrate(trace)

    @classmethod
    def from_report(cls, trace: Trace, report: Report) -> Calibration:
        """Return the same, over the window of a report that there is already."""
        from rlinsight.analyzers.simulate.calibrate import calibrate

        return calibrate(trace, window=(report.window.start_ns, report.window.end_ns))

    def saw(self, cost: str) -> bool:
        """Whether the run had any of a cost: one that is 0 may be so small, or never seen."""
        return bool(getattr(self.costs, cost)) or any(f.name == f"costs.{cost}" for f in self.fits)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; docs/simulator.md lists every key."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Calibration:
        """Read the JSON form. Raises TraceError for another version of it."""
        if not isinstance(data, dict):
            raise TraceError(f"expected a calibration, found a JSON {type(data).__name__}")
        version = data.get("schema_version")
        if version != CALIBRATION_SCHEMA_VERSION:
            raise TraceError(
                f"expected a calibration of schema version {CALIBRATION_SCHEMA_VERSION}, found "
                f"`{version}`; calibrate the trace again"
            )
        parts = {
            "knobs": Knobs(**data["knobs"]),
            "lengths": _lengths(data["lengths"]),
            "validation_lengths": _lengths(data["validation_lengths"]),
            "decode": Decode(**data["decode"]),
            "training": Training(**_tuples(data["training"])),
            "costs": Costs(**data["costs"]),
            "uncertainty": Uncertainty(**data["uncertainty"]),
            "fits": tuple(Fit(**fit) for fit in data["fits"]),
            "notes": tuple(data["notes"]),
        }
        return cls(**{**data, **parts})

    def to_json(self) -> str:
        """Return the calibration as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read what `to_json` wrote. Raises TraceError for another version of it."""
        return cls.from_dict(json.loads(text))


def _lengths(data: dict[str, Any]) -> LengthModel:
    return LengthModel(tuple(tuple(group) for group in data["groups"]), data["cap"])


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
