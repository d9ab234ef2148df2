"""Where a response curve stops rising: its plateau, its knee, and where it falls again.

Let `gain(s, t)` be what setting t is better than setting s by, at equal conditions, with its 95 %
interval. A gain is **real** when it is larger than the smallest that matters (`least`) and more
than noise (its p-value, corrected over all pairs of settings, is below alpha).

* The **plateau** begins at the smallest setting that no later setting is really better than.
  If that is the last one, the curve was still rising where it was last measured.
* It is **shown** when the interval of the gain of every later setting lies below `least`. Else
  up to `hidden` may still be gained there without this having been noticed: the noise hides it.
* The curve **falls** at the first later setting that is really worse than the plateau's first.
* The **knee** is the setting farthest above the chord from the first setting to the plateau's
  (Satopaa et al., 2011): most of the gain is had there. A curve that does not bend has none.

Worked example: waits of 30, 18, 17 and 17 % at a staleness of 0.3, 0.5, 0.7, 0.9, known to half a
point, with a least gain of two points: 0.5 is really better than 0.3, and nothing is than 0.5.
The plateau begins at 0.5; with intervals of +-3 points it would not be shown, as up to 4 points
may hide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: A knee lies at least so far above the chord, as a share of the whole gain.
_BEND: Final = 0.1


@dataclass(frozen=True)
class Gain:
    """What setting `after` is better than setting `before` by: relative, or in points of a share.

    `low` and `high` are the 95 % interval; `real` as the module defines it, `worse` the same for
    a loss. `p_adjusted` is corrected over all pairs of the curve.
    """

    before: float
    after: float
    gain: float
    low: float
    high: float
    p_adjusted: float
    real: bool
    worse: bool


@dataclass(frozen=True)
class Plateau:
    """The plateau of a curve, from `start` on; `falls_at` is None where it does not fall again."""

    start: float
    shown: bool
    hidden: float
    falls_at: float | None


def plateau(settings: Sequence[float], gains: Sequence[Gain], least: float) -> Plateau | None:
    """Return the plateau over `settings` in ascending order; None for a curve that still rises.

    `gains` holds every pair of settings, the smaller one before the larger.
    """
    pairs = {(one.before, one.after): one for one in gains}
    for i, start in enumerate(settings[:-1]):
        later = [pairs[start, after] for after in settings[i + 1 :]]
        if not any(one.real for one in later):
            most = max(one.high for one in later)
            falls = next((one.after for one in later if one.worse), None)
            return Plateau(start, most <= least, max(most, 0.0), falls)
    return None


def knee(means: Mapping[float, float], gains: Sequence[Gain], top: float) -> float | None:
    """Return the setting at which a rising curve bends most on its way to `top`.

    `means` are the values (better ones larger) by setting. None where the way to `top` is no
    real gain, has no setting in between, or does not bend.
    """
    settings = sorted(setting for setting in means if setting <= top)
    first = settings[0]
    whole = next((one for one in gains if (one.before, one.after) == (first, top)), None)
    rise = means[top] - means[first]
    if whole is None or not whole.real or len(settings) < 3 or rise <= 0:
        return None
    above = {
        setting: (means[setting] - means[first]) / rise - (setting - first) / (top - first)
        for setting in settings[1:-1]
    }
    best = max(above, key=lambda setting: above[setting])
    return best if above[best] >= _BEND else None
