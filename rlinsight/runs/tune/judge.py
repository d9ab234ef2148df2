"""How an experiment compares with the kept run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import rlinsight
from rlinsight.errors import RlinsightError
from rlinsight.runs.tune.log import Judged, Objective

if TYPE_CHECKING:
    from rlinsight.analyzers.advise.finding import Aim
    from rlinsight.analyzers.compare.result import Comparison
    from rlinsight.analyzers.gate.result import MetricVerdict

#: The metric of the comparison that each objective is about.
METRIC_OF: Final[dict[Objective, str]] = {
    "per-device": "tokens_per_s_per_device",
    "wall-clock": "samples_per_s",
}
#: What a change that aims at freshness is about.
LAG: Final = "lag_versions"
#: A gain that is worth keeping a change for, relative; the advisor proposes from there on.
LEAST: Final = 0.03


def judged(kept: str, new: str, objective: Objective, aim: Aim = "throughput") -> Judged:
    """Return the experiment in the trace `new` beside the kept run, judged by what it is for."""
    from rlinsight.analyzers.compare.compare import SETTINGS, compare
    from rlinsight.analyzers.compare.entrant import entrant
    from rlinsight.analyzers.compare.guard import losses
    from rlinsight.analyzers.gate.settings import MetricSettings

    metric = METRIC_OF[objective]
    least = {metric: MetricSettings(relative=LEAST)}
    alone = (metric, LAG) if aim == "freshness" else (metric,)
    settings = replace(SETTINGS, metrics={**SETTINGS.metrics, **least}, alone=alone)
    try:
        before, after = entrant("kept", rlinsight.open(kept)), entrant("new", rlinsight.open(new))
        found = compare([before, after], settings=settings)
    except RlinsightError as error:
        return Judged(None, None, None, None, None, f"the two cannot be compared: {error}")
    rate, lag = (_cell(found, name) for name in (metric, LAG))
    told = verdict(rate, settings.alpha)
    return replace(
        fresher(told, lag) if aim == "freshness" else told,
        losses=losses(before, after, found),
        differences=_real(found, metric),
    )


def _cell(found: Comparison, metric: str) -> MetricVerdict | None:
    row = found.row(metric)
    return None if row is None else row.cells[1]


def verdict(cell: MetricVerdict | None, alpha: float) -> Judged:
    """Return whether the objective really changed: by more than `LEAST`, and than noise.

    The objective is the one metric that decides, so that neither its p-value nor what could have
    been detected needs a correction for the others.
    """
    if cell is None or cell.change is None or not cell.reference or cell.p_value is None:
        reason = "the objective is not known" if cell is None else cell.reason
        return Judged(None, None, None, None, None, reason)
    scale = cell.reference
    change = cell.change / scale
    low, high, detectable = (
        None if value is None else value / scale for value in (cell.low, cell.high, cell.detectable)
    )
    is_real = abs(change) > LEAST and cell.p_value < alpha
    if is_real:
        real, reason = ("better", "a real gain") if change > 0 else ("worse", "a real loss")
        return Judged(change, low, high, detectable, real, reason)  # type: ignore[arg-type]
    reason = (
        "the change may be noise" if abs(change) > LEAST else f"the change is below {LEAST:.0%}"
    )
    return Judged(change, low, high, detectable, "no", reason)


def fresher(rate: Judged, lag: MetricVerdict | None) -> Judged:
    """Return whether samples really got fresher, and no throughput was lost for it.

    More throughput that was not aimed at is a real gain as well.
    A loss of throughput that may be noise is one from `LEAST` on: fresher samples are not bought.
    """
    if rate.real is None or rate.change is None:
        return rate
    if rate.real == "worse" or rate.change <= -LEAST:
        return replace(rate, real="worse", reason="it costs throughput")
    if lag is None or lag.value is None or lag.reference is None:
        return replace(rate, real=None, reason="the lag is not known")
    if lag.direction != "better":
        return (
            rate
            if rate.real == "better"
            else replace(rate, real="no", reason="samples are not really fresher")
        )
    return replace(
        rate,
        real="better",
        reason=f"samples are really fresher, {lag.value:.2g} instead of {lag.reference:.2g} "
        "versions old, and no throughput is lost",
    )


def _real(found: Comparison, metric: str) -> tuple[str, ...]:
    """Return the other figures that really differ, in words."""
    from rlinsight.report.compare.words import change, is_real
    from rlinsight.report.compare.words import verdict as word

    cells = [row.cells[1] for row in found.metrics if row.name != metric]
    return tuple(
        f"{cell.name} {change(cell)} {word(cell)}"
        for cell in cells
        if cell is not None and is_real(cell)
    )
