"""The metrics of a check: each a ratio of two columns of an observation.

| metric | is | better |
|---|---|---|
| `tokens_per_s_per_device` | trained tokens / (seconds x devices) | higher |
| `samples_per_s` | trained samples / seconds | higher |
| `step_time_s` | time of the driver's steps / steps | lower |
| `weight_sync_s` | time of the weight syncs / syncs, main backend | lower |
| `lag_versions` | versions between first token and training / samples | lower |
| `recording_overhead` | time inside hooks, summed over processes / wall time | lower |
| `idle.<pool>` | bubble device-seconds / device-seconds | lower |
| `bubble.<pool>.<cause>` | the part of it with one cause | lower |
| `logged:<key>` | mean over the steps of what the framework logged | either |

What is a cost by itself may fail a build. Idle and bubbles are watched only: when one side
becomes faster, it is the other's work that shows as its idle time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from rlinsight.analyzers.device_time.states import cause_of, kind
from rlinsight.analyzers.gate.observation import Column, Observation, Scalar
from rlinsight.analyzers.gate.settings import LOGGED, MetricSettings

Floats = npt.NDArray[np.float64]

#: The causes of a trainer bubble that mean: samples are missing.
WAITS: Final = ("wait_samples", "long_tail", "poll_interval")


@dataclass(frozen=True)
class Series:
    """A metric over the windows of one run: its value is sum(amount) / sum(per).

    `conditions` say what the windows were like: `length` the mean response length, which is
    matched where a metric asks for it, `validations` and `checkpoints` whether one fell in.
    Single-number metrics have one window.
    """

    amount: Floats
    per: Floats
    conditions: Mapping[str, Floats] = field(default_factory=dict)
    single: bool = False

    @property
    def value(self) -> float:
        """The metric over all windows."""
        return float(self.amount.sum() / self.per.sum())


@dataclass(frozen=True)
class Metric:
    """A metric of one run; `series` is None where it was not measured, `why` then says so."""

    name: str
    unit: str
    defaults: MetricSettings
    series: Series | None
    why: str | None = None


_RATE: Final = MetricSettings(0.05, 0.0, "higher", gates=True, match_length=True)
_TIME: Final = MetricSettings(0.05, 0.0, "lower", gates=True, match_length=True)
_SYNC: Final = MetricSettings(0.20, 0.05, "lower", gates=True, match_length=False)
_LAG: Final = MetricSettings(0.20, 0.20, "lower", gates=True, match_length=False)
_IDLE: Final = MetricSettings(0.10, 0.03, "lower", gates=False, match_length=True)
_SCALAR: Final = MetricSettings(0.50, 0.0, "either", gates=True, match_length=False)
_OVERHEAD: Final = MetricSettings(0.50, 0.005, "lower", gates=True, match_length=False)
_LOGGED: Final = MetricSettings(0.10, 0.0, "either", gates=True, match_length=False)


def metrics(run: Observation, wanted: Sequence[str] = ()) -> dict[str, Metric]:
    """Return the metrics of `run` by name; of the logged ones those that are `wanted`."""
    found = {metric.name: metric for metric in _of_windows(run)}
    for name, scalar in run.scalars.items():
        defaults = _OVERHEAD if name == "recording_overhead" else _SCALAR
        settings = MetricSettings(
            defaults.relative, defaults.absolute, scalar.better, scalar.gates, match_length=False
        )
        found[name] = Metric(name, scalar.unit, settings, _single(scalar.value), _unknown(scalar))
    for name in wanted:
        if name.startswith(LOGGED):
            found[name] = _logged(run, name.removeprefix(LOGGED))
    return found


def _unknown(scalar: Scalar) -> str | None:
    if scalar.value is None:
        return "it was not measured"
    return None if np.isfinite(scalar.value) else "it is not a finite number"


def _single(value: float | None) -> Series | None:
    if value is None or not np.isfinite(value):
        return None
    return Series(np.array([value]), np.ones(1), single=True)


def _of_windows(run: Observation) -> Iterator[Metric]:
    devices = sum(run.devices.values())
    if not run.count:
        return
    if devices:
        yield _ratio(run, "tokens_per_s_per_device", "tokens/s/device", _RATE,
                     "tokens", "seconds", devices)  # fmt: skip
    yield _ratio(run, "samples_per_s", "samples/s", _RATE, "samples", "seconds")
    yield _ratio(run, "step_time_s", "s", _TIME, "step_s", "steps")
    if any(run.windows.get("syncs", ())):
        yield _ratio(run, "weight_sync_s", "s", _SYNC, "sync_s", "syncs")
    if "lag" in run.windows:
        yield _ratio(run, "lag_versions", "versions", _LAG, "lag", "lag_known")
    for pool in run.devices:
        yield from _bubbles(run, pool)


def _bubbles(run: Observation, pool: str) -> Iterator[Metric]:
    states = [name for name in run.windows if name.startswith(f"{pool}/")]
    causes = [name for name in states if kind(name.split("/", 1)[1]) == "bubble"]
    yield _together(run, f"idle.{pool}", pool, causes)
    for name in causes:
        yield _together(run, f"bubble.{pool}.{cause_of(name.split('/', 1)[1])}", pool, [name])


def waits(run: Observation) -> Metric | None:
    """Return the metric `wait.trainer`: the share of its time that the trainer waits for samples.

    Bubbles of the causes `WAITS` together; None for a run without trainer devices or windows.
    """
    if "trainer" not in run.devices or not run.count:
        return None
    states = [name for name in run.windows if name in {f"trainer/bubble.{c}" for c in WAITS}]
    return _together(run, "wait.trainer", "trainer", states)


def _together(run: Observation, name: str, pool: str, states: Sequence[str]) -> Metric:
    """Return the share of a pool's device time that these states take together."""
    columns = [run.windows[state] for state in states]
    amount = tuple(sum(column[i] or 0.0 for column in columns) for i in range(run.count))
    return _metric(run, name, "share", _IDLE, amount, run.windows["seconds"], run.devices[pool])


def absent_bubble(run: Observation, name: str) -> Metric | None:
    """Return the metric `bubble.<pool>.<cause>` of a run without that bubble: 0, not unknown.

    The ledger is complete, so a cause that does not appear in it took no time.
    """
    parts = name.split(".", 2)
    if parts[0] != "bubble" or len(parts) < 3 or parts[1] not in run.devices or not run.count:
        return None
    return _together(run, name, parts[1], [])


def _ratio(
    run: Observation,
    name: str,
    unit: str,
    defaults: MetricSettings,
    amount: str,
    per: str,
    devices: int = 1,
) -> Metric:
    missing = [column for column in (amount, per) if column not in run.windows]
    if missing:
        return Metric(name, unit, defaults, None, f"the trace has no {_THING[missing[0]]}")
    return _metric(run, name, unit, defaults, run.windows[amount], run.windows[per], devices)


_THING: Final = {
    "tokens": "trained sample of known length",
    "samples": "trained sample",
    "step_s": "training step",
    "steps": "training step",
}


def _metric(
    run: Observation,
    name: str,
    unit: str,
    defaults: MetricSettings,
    amount: Column,
    per: Column,
    devices: int = 1,
) -> Metric:
    top, bottom = _floats(amount), _floats(per) * devices
    known = np.isfinite(top) & np.isfinite(bottom) & (bottom > 0)
    if not known.any():
        return Metric(name, unit, defaults, None, "it is unknown in every window")
    impossible = _impossible(float(top[known].sum()), defaults)
    if impossible is not None:
        return Metric(name, unit, defaults, None, impossible)
    conditions = {key: column[known] for key, column in _conditions(run).items()}
    return Metric(name, unit, defaults, Series(top[known], bottom[known], conditions))


def _impossible(amount: float, defaults: MetricSettings) -> str | None:
    """Return why an amount is no measurement: less than nothing, or no work at all."""
    if amount < 0:
        return "it is negative, which it cannot be"
    if amount == 0 and defaults in (_RATE, _TIME):
        return "nothing was trained in the steady windows"
    return None


def _conditions(run: Observation) -> dict[str, Floats]:
    found = {
        name: _floats(run.windows[name])
        for name in ("validations", "checkpoints")
        if name in run.windows
    }
    if "lengths" in run.windows:
        tokens, count = _floats(run.windows["lengths"]), _floats(run.windows["lengths_known"])
        found["length"] = np.divide(
            tokens, count, out=np.full(len(tokens), np.nan), where=count > 0
        )
    return found


def _logged(run: Observation, key: str) -> Metric:
    name = LOGGED + key
    if run.not_finite.get(key):
        count = run.not_finite[key]
        return Metric(name, "", _LOGGED, None, f"it is not a finite number at {count} steps")
    if key not in run.logged:
        return Metric(name, "", _LOGGED, None, "the trace has no such logged metric")
    values, length = _floats(run.logged[key]), run.logged.get("response_length/mean")
    known = np.isfinite(values)
    conditions = {} if length is None else {"length": _floats(length)[known]}
    return Metric(name, "", _LOGGED, Series(values[known], np.ones(known.sum()), conditions))


def _floats(column: Column) -> Floats:
    return np.array([np.nan if value is None else value for value in column], dtype=np.float64)
