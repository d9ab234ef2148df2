"""The figures of merit by which runs are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rlinsight.analyzers.device_time.steady import bootstrap_interval
from rlinsight.analyzers.result import Estimate, Report
from rlinsight.report.units import number, percent, seconds


@dataclass(frozen=True)
class Figure:
    """One row of the comparison: its name, unit, value with interval, and how it is printed."""

    name: str
    unit: str
    of: Callable[[Report], Estimate]
    show: Callable[[float | None], str] = number


def idle_ratio(report: Report, pool: str) -> Estimate:
    """Return the idle ratio of a pool, with its interval over the version windows."""
    found = report.pools.get(pool)
    if found is None:
        return Estimate(None)
    rows = [row for row in report.versions if row.idle_ratio.get(pool) is not None]
    idle = [(row.idle_ratio[pool] or 0.0) * row.duration_s for row in rows]
    between = bootstrap_interval(idle, [row.duration_s for row in rows])
    return Estimate(found.idle_ratio, *(between or (None, None)))


def step_s(report: Report) -> Estimate:
    """Return the mean duration of a training step in the window, in seconds."""
    window = report.window
    steps = [
        step.duration_s for step in report.steps if window.start_ns <= step.start_ns < window.end_ns
    ]
    if not steps:
        return Estimate(None)
    between = bootstrap_interval(steps, [1.0] * len(steps))
    return Estimate(sum(steps) / len(steps), *(between or (None, None)))


def _of(value: float | None) -> Estimate:
    return Estimate(value)


def _lag(report: Report) -> Estimate:
    return Estimate(report.staleness.worst_token.mean_versions)


def _wasted(report: Report) -> Estimate:
    return Estimate(report.tokens.wasted_share if report.tokens else None)


FIGURES: Final = (
    Figure("throughput", "tokens/s/device", lambda r: r.throughput.tokens_per_s_per_device),
    Figure("samples trained", "samples/s", lambda r: r.throughput.samples_per_s),
    Figure("step time", "", step_s, seconds),
    Figure("trainer idle", "", lambda r: idle_ratio(r, "trainer"), percent),
    Figure("rollouter idle", "", lambda r: idle_ratio(r, "rollouter"), percent),
    Figure("lag of the first token", "versions", _lag),
    Figure("stale share", "", lambda r: _of(r.staleness.stale_share), percent),
    Figure("coverage, measured", "", lambda r: _of(r.coverage.measured), percent),
    Figure("wasted tokens", "", _wasted, percent),
    Figure("response length", "tokens", lambda r: _of(r.lengths.mean)),
    Figure("share at the cap", "", lambda r: _of(r.lengths.cap_share), percent),
    Figure("tail cost", "device-s", lambda r: _of(r.lengths.tail_cost_device_seconds)),
    Figure("mean reward", "", lambda r: _of(r.quality.reward.mean if r.quality.reward else None)),
    Figure("reward volatility", "", lambda r: _of(r.quality.reward_volatility)),
    Figure("validation, last", "", lambda r: _of(next((a.last for a in r.quality.accuracy), None))),
    Figure("rollout_corr/kl", "", lambda r: _of(r.quality.kl.median if r.quality.kl else None)),
)  # fmt: skip


def shown(estimate: Estimate, figure: Figure) -> str:
    """Return a value with its unit and interval."""
    if estimate.value is None:
        return "–"
    text = f"{figure.show(estimate.value)} {figure.unit}".strip()
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text}  [{figure.show(estimate.low)}, {figure.show(estimate.high)}]"


def differ(one: Estimate, other: Estimate) -> bool:
    """Return whether two 95 % intervals have nothing in common; False where one is unknown."""
    if None in (one.low, one.high, other.low, other.high):
        return False
    assert one.low is not None
    assert one.high is not None
    assert other.low is not None
    assert other.high is not None
    return one.high < other.low or other.high < one.low
