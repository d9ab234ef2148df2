"""One metric of a run against the accepted runs before it.

    reference   mean of the metric over the accepted runs, at the new run's conditions (matching)
    change      new value - reference
    variance    V_new + T + (mean V + T) / k

V is a run's own variance over windows (block bootstrap), k the number of accepted runs, and T the
variance between equal runs beyond that: machines, neighbours, caches. From few runs T cannot be
estimated, so it is moderated (Smyth, 2004): what the accepted runs show, with weight k - 1, and
an assumed spread, with the weight of `PRIOR` runs. One accepted run is enough to start with.

The p-value is Student's, two-sided. The smallest detectable change is that which is caught in
80 % of cases, be it the only metric that moves: max(corridor, t(alpha / metrics) x error) +
t(80 %) x error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlinsight.analyzers.gate.matching import Matched, match
from rlinsight.analyzers.gate.metrics import Series
from rlinsight.analyzers.gate.settings import MetricSettings, Settings
from rlinsight.analyzers.gate.variance import Spread, ratio_variance, total
from rlinsight.analyzers.significance import student_margin, student_two_sided

#: How many runs the assumed run-to-run spread counts for, beside those that were accepted.
PRIOR: Final = 8
#: The power that the smallest detectable change is stated for.
_POWER: Final = 0.8


@dataclass(frozen=True)
class Comparison:
    """A metric of the new run beside its reference, all in the metric's unit.

    `reference` is at the new run's conditions, `explained` what of the raw difference those
    explain. `low` and `high` are the 95 % interval of the change. `p_value` is two-sided, before
    correction. `runs` made the reference, `run_spread` is the standard deviation of equal runs that
    is reckoned with.
    """

    value: float
    raw_reference: float
    reference: float
    explained: float
    matched: tuple[str, ...]
    corridor: float
    low: float
    high: float
    error: float
    freedom: float
    p_value: float
    runs: int
    run_spread: float

    @property
    def change(self) -> float:
        """New value less reference, at equal conditions."""
        return self.value - self.reference

    @property
    def relative(self) -> float | None:
        """The change as a share of the reference; None of one that is not positive."""
        return self.change / self.reference if self.reference > 0 else None

    @property
    def outside(self) -> bool:
        """Whether the change leaves the corridor."""
        return abs(self.change) > self.corridor

    def detectable(self, alpha: float) -> float:
        """Return the smallest change that is caught in 80 % of cases at level `alpha`."""
        if not math.isfinite(self.error) or self.error == 0:
            return self.corridor
        needed = student_margin(self.freedom, 1 - alpha) * self.error
        return (
            max(self.corridor, needed) + student_margin(self.freedom, 2 * _POWER - 1) * self.error
        )


def compare(
    new: Series, history: Sequence[Series], metric: MetricSettings, settings: Settings
) -> Comparison:
    """Return `new` beside the runs of `history`, of which there is at least one."""
    matched = match([*history, new], settings.match_on if metric.match_length else ())
    offset = float(matched.offsets[-1])
    values = np.array([run.value for run in (*history, new)]) - matched.offsets
    spreads = _spreads([*history, new], matched)
    reference = float(values[:-1].mean()) + offset
    corridor = max((metric.relative or 0.0) * abs(reference), metric.absolute or 0.0)
    between = _between(values[:-1], spreads[:-1], settings.run_to_run * corridor)
    error = _error(spreads, between, matched)
    change, sigma = new.value - reference, math.sqrt(error.variance)
    margin = student_margin(error.freedom) * sigma
    return Comparison(
        value=new.value,
        raw_reference=float(np.mean([run.value for run in history])),
        reference=reference,
        explained=offset,
        matched=matched.names,
        corridor=corridor,
        low=change - margin,
        high=change + margin,
        error=sigma,
        freedom=error.freedom,
        p_value=_p_value(change, error),
        runs=len(history),
        run_spread=math.sqrt(between.variance),
    )


def _spreads(runs: Sequence[Series], matched: Matched) -> list[Spread]:
    """Return each run's own variance, of what its conditions leave unexplained.

    A slope that is fitted takes some of the noise along with it: the spread is scaled up.
    """
    windows = sum(len(run.per) for run in runs)
    free = windows - len(runs)
    scale = free / matched.freedom if matched.freedom else 1.0
    found = []
    for run, amount in zip(runs, matched.amounts, strict=True):
        own = ratio_variance(amount, run.per)
        found.append(Spread(own.variance * scale, own.freedom))
    return found


def _between(values: np.ndarray, own: Sequence[Spread], assumed: float) -> Spread:
    """Return the variance between equal runs beyond what their own windows explain.

    Worked example: an assumed spread of 1 and three runs at 98, 100, 102 of no spread of their
    own: (8 x 1 + 2 x 4) / 10 = 1.6 on 10 degrees of freedom.
    """
    seen, runs = 0.0, len(values)
    if runs > 1:
        within = float(np.mean([spread.variance for spread in own]))
        seen = max(0.0, float(values.var(ddof=1)) - within)
    freedom = PRIOR + runs - 1
    return Spread((PRIOR * assumed**2 + (runs - 1) * seen) / freedom, freedom)


def _error(spreads: Sequence[Spread], between: Spread, matched: Matched) -> Spread:
    """Return the variance of the change."""
    runs = len(spreads) - 1
    parts = [(1.0, spreads[-1]), (1 + 1 / runs, between)]
    parts += [(1 / runs**2, spread) for spread in spreads[:-1]]
    if matched.freedom:
        parts.append((1.0, Spread(matched.variance, matched.freedom)))
    return total(parts)


def _p_value(change: float, error: Spread) -> float:
    if error.variance <= 0:
        return 1.0 if change == 0 else 0.0
    return student_two_sided(change / math.sqrt(error.variance), error.freedom)


def own_margin(run: Series) -> float | None:
    """Return the half-width of the run's own 95 % interval; None with too few windows."""
    if run.single or len(run.per) < 4:
        return None
    spread = ratio_variance(run.amount, run.per)
    return student_margin(spread.freedom) * math.sqrt(spread.variance)
