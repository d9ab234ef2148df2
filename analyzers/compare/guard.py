"""Whether a change cost training quality: what a faster run must not have lost.

| figure | lost when |
|---|---|
| `rollout_corr/kl` | its level rose (healthy, raised, broken) |
| effective sample size | it collapsed, and had not before |
| mean reward | it is really lower over the steps that both runs have, or not logged any more |
| reward, kl, entropy | not a finite number at some steps, and was one at all of the kept run's |
| validation accuracy | more than `ACCURACY` lower at the last validation that the other covers |
| reward volatility | more than `VOLATILITY` times what it was |

Progress is counted in training steps, where these train different numbers of samples in samples.
Two short runs cannot show that quality was kept, only that it was clearly lost; accuracy and
volatility have no test of their differences, so that their margins are wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from rlinsight.analyzers.compare.compare import QUALITY
from rlinsight.analyzers.compare.curves import Curve
from rlinsight.analyzers.compare.entrant import Entrant
from rlinsight.analyzers.compare.progress import equal_steps, trained_by
from rlinsight.analyzers.compare.result import Comparison
from rlinsight.analyzers.gate.settings import LOGGED

#: Accuracy may differ by so much between equal runs: points, and share of what it was.
ACCURACY: Final = 0.05
ACCURACY_SHARE: Final = 0.10
VOLATILITY: Final = 2.0
_REWARD: Final = "critic/rewards/mean"
_LEVELS: Final = ("healthy", "raised", "broken")


def losses(before: Entrant, after: Entrant, found: Comparison) -> tuple[str, ...]:
    """Return what `after` lost beside `before`, one sentence each; `found` compares the two."""
    return (
        *_mismatch(before, after),
        *_collapse(before, after),
        *_reward(found, after.name),
        *_unknown(before, after),
        *_diverged(before, after),
        *_accuracy(before, after),
        *_volatility(before, after),
    )


def _mismatch(before: Entrant, after: Entrant) -> Iterator[str]:
    old, new = before.report.quality.kl, after.report.quality.kl
    if new is None:
        return
    was = "healthy" if old is None else old.level
    if _LEVELS.index(new.level) > _LEVELS.index(was):
        told = "not known" if old is None else f"{old.median:.2g} ({old.level})"
        yield f"rollout_corr/kl is {new.median:.2g} ({new.level}), it was {told}"


def _collapse(before: Entrant, after: Entrant) -> Iterator[str]:
    old = before.report.quality.effective_sample_size
    new = after.report.quality.effective_sample_size
    if new is not None and new.collapsed and not (old is not None and old.collapsed):
        yield f"the effective sample size has collapsed to {new.last:.2f}"


def _reward(found: Comparison, name: str) -> Iterator[str]:
    row = found.row(LOGGED + _REWARD)
    place = [run.name for run in found.runs].index(name)
    cell = None if row is None else row.cells[place]
    if cell is not None and cell.direction == "worse":
        assert cell.value is not None
        assert cell.reference is not None
        yield f"the mean reward is {cell.value:.3g} instead of {cell.reference:.3g}"


def _unknown(before: Entrant, after: Entrant) -> Iterator[str]:
    """Without a reward nobody sees what a change cost."""
    logged = {*after.whole.logged, *after.whole.not_finite}
    if _REWARD in before.whole.logged and _REWARD not in logged:
        yield "the mean reward is not logged any more"


def _diverged(before: Entrant, after: Entrant) -> Iterator[str]:
    """What is no number has no level to compare: that it is none is the loss."""
    old, new = before.whole.not_finite, after.whole.not_finite
    for name in QUALITY:
        key = name.removeprefix(LOGGED)
        if new.get(key) and not old.get(key):
            yield f"{key} is not a finite number at {new[key]} steps"


def _accuracy(before: Entrant, after: Entrant) -> Iterator[str]:
    """Compare at the last validation of `after` that is within those of `before`.

    Between two validations of `before` its accuracy is taken to change evenly; where learning slows
    down it was better than that, so that a loss may pass and none is made up. Worked example: 0.2
    and 0.4 after 320 and 640 samples, beside 0.3 after 480 of another run: nothing is lost.
    """
    in_samples = not equal_steps([before.marks, after.marks])
    earlier = {curve.figure: curve for curve in before.curves if _is_accuracy(curve)}
    for curve in after.curves:
        if not (_is_accuracy(curve) and curve.figure in earlier):
            continue
        old = _points(before, earlier[curve.figure], in_samples)
        new = _points(after, curve, in_samples)
        if not old or not new:
            continue
        within = [x for x in new if min(old) <= x <= max(old)]
        if not within:
            continue
        at = max(within)
        was, is_now = float(np.interp(at, *_sorted(old))), new[at]
        if was - is_now > max(ACCURACY, ACCURACY_SHARE * abs(was)):
            place = f"after {at:.0f} trained samples" if in_samples else f"at step {at:g}"
            yield f"{curve.figure} {place} is {is_now:.3g} instead of {was:.3g}"


def _volatility(before: Entrant, after: Entrant) -> Iterator[str]:
    old, new = before.report.quality.reward_volatility, after.report.quality.reward_volatility
    if old and new is not None and new > VOLATILITY * old:
        yield f"the reward volatility is {new:.3g} instead of {old:.3g}"


def _is_accuracy(curve: Curve) -> bool:
    """Whether this is an accuracy over updates: versions of two runs are not the same training."""
    return curve.figure.startswith("val-core/") and curve.axis == "training step"


def _points(run: Entrant, curve: Curve, in_samples: bool) -> dict[float, float]:
    """Return the known values of a curve by steps, or by the samples trained until then."""
    known = {x: y for x, y in zip(curve.x, curve.y, strict=True) if y is not None}
    if not in_samples:
        return known
    trained = trained_by(run.report)
    return {float(trained[int(x)]): y for x, y in known.items() if int(x) in trained}


def _sorted(points: dict[float, float]) -> tuple[list[float], list[float]]:
    return sorted(points), [points[x] for x in sorted(points)]
