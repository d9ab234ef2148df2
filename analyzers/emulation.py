"""Whether a run on emulated devices was within the time scale that its machine can keep.

Problem: devices wait as long as the cost model says, but verl's own work takes real time, which
counts 1 / scale times over. Where that is too much, the figures are those of this machine and
not of the emulated cluster. Four figures show it:

* real responses per second: requests that ended / (window x scale);
* CPU of the machine: mean share of all its cores that was busy, whoever used them;
* lateness of updates: 95th percentile of how late updates ended / median update time. What verl
  does between a batch and its update is made up for within the update, so it counts only where
  it takes longer than the update;
* delay of requests: median time from the agent loop to a replica / median time on the replica.

Worked example: 400 requests end in a window of 100 s at a scale of 0.1, that is 40 a real second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

#: Above these the figures of an emulated run are doubted. Measured on two cores, where 35
#: responses a second kept a version's time within 2 % of that at a third of the speed.
MAX_RESPONSES_PER_S = 35.0
MAX_HOST_CPU = 0.8
MAX_UPDATE_LATENESS = 0.05
MAX_REQUEST_DELAY = 0.05

#: Counters that the emulation records.
LATE, DELAY = "emulated_update_late_s", "emulated_control_plane_s"
_HOST_CPU = "host_cpu_utilization"

Window = tuple[int, int]


@dataclass(frozen=True)
class Emulation:
    """How well a run kept its time scale. Ratios are fractions; None where not recorded.

    `responses_per_s` are real ones; `update_lateness` and `request_delay` are relative to an
    update and to a request. `doubts` are the reasons to doubt the figures, sentences.
    """

    time_scale: float
    responses_per_s: float | None
    host_cpu: float | None
    update_lateness: float | None
    request_delay: float | None
    doubts: tuple[str, ...]

    def sentence(self) -> str:
        """Return the figures in one sentence."""
        parts = [f"emulated devices at a time scale of {self.time_scale:g}"]
        for value, text in (
            (self.responses_per_s, "{:.0f} responses a real second"),
            (self.host_cpu, "host CPU {:.0%}"),
            (self.update_lateness, "updates end late by {:.1%} of an update (p95)"),
            (self.request_delay, "requests are delayed by {:.1%} of a request (median)"),
        ):
            parts.append(text.format(value) if value is not None else "")
        return ", ".join(part for part in parts if part)


def emulation(
    notes: Mapping[str, Any],
    requests: pl.DataFrame,
    counters: pl.DataFrame,
    spans: pl.DataFrame,
    window: Window,
) -> Emulation | None:
    """Return how well the run kept its time scale in `window`; None for real devices."""
    scale = (notes.get("emulated") or {}).get("time_scale")
    if not scale:
        return None
    inside = counters.filter(pl.col("ts_ns").is_between(*window))
    ended = requests.filter(pl.col("end_ns").is_between(*window))
    figures = {
        "responses_per_s": _per_real_second(len(ended), window, scale),
        "host_cpu": _number(_values(inside, _HOST_CPU).mean()),
        "update_lateness": _lateness(spans, inside),
        "request_delay": _ratio(_values(inside, DELAY).median(), _request_s(ended)),
    }
    return Emulation(time_scale=scale, **figures, doubts=_doubts(figures))


def _doubts(figures: Mapping[str, float | None]) -> tuple[str, ...]:
    limits = (
        ("responses_per_s", MAX_RESPONSES_PER_S, "{:.0f} emulated responses a real second"),
        ("host_cpu", MAX_HOST_CPU, "the host's CPU was {:.0%} busy"),
        ("update_lateness", MAX_UPDATE_LATENESS, "updates ended late by {:.1%} of an update (p95)"),
        ("request_delay", MAX_REQUEST_DELAY, "requests were delayed by {:.1%} of a request"),
    )
    return tuple(
        f"{text.format(value)}, more than {_limit_text(limit)}: raise `emulated.time_scale`"
        for name, limit, text in limits
        if (value := figures[name]) is not None and value > limit
    )


def _limit_text(limit: float) -> str:
    return f"{limit:.0%}" if limit < 1 else f"{limit:g}"


def _values(counters: pl.DataFrame, name: str) -> pl.Series:
    return counters.filter(pl.col("name").cast(pl.String) == name)["value"]


def _per_real_second(count: int, window: Window, scale: float) -> float | None:
    real_s = (window[1] - window[0]) / 1e9 * scale
    return count / real_s if real_s > 0 else None


def _lateness(spans: pl.DataFrame, counters: pl.DataFrame) -> float | None:
    """Return the 95th percentile of how late updates ended / the median update.

    An update of several mini-batches makes up for lateness; what its last one says counts.
    """
    updates = spans.filter(
        (pl.col("activity") == "update_actor")
        & (pl.col("lane").cast(pl.String) != "trainer")
        & pl.col("end_ns").is_not_null()
    ).sort("end_ns")
    said = counters.filter(pl.col("name").cast(pl.String) == LATE)
    last = updates.join_asof(
        said.select("ts_ns", "value").sort("ts_ns"),
        left_on="end_ns",
        right_on="ts_ns",
        strategy="backward",
        coalesce=False,
    ).filter(pl.col("ts_ns") >= pl.col("start_ns"))
    seconds = (last["end_ns"] - last["start_ns"]) / 1e9
    return _ratio(last["value"].quantile(0.95), _number(seconds.median()))


def _request_s(requests: pl.DataFrame) -> float | None:
    return _number(((requests["end_ns"] - requests["submit_ns"]) / 1e9).median())


def _ratio(part: Any, whole: float | None) -> float | None:
    value = _number(part)
    return value / whole if value is not None and whole else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
