"""How many versions to measure: whole rounds of validations and checkpoints.

Problem: of a run that validates every 25 versions, 30 versions hold one validation or two, and 20
may hold none, so that the throughput depends on where the measured part ends; two settings with
different intervals differ then by what happens to fall inside. Method: as many versions as make
whole rounds. Where a round is longer than what is usually simulated, the measured part grows to it,
as long as it costs anything, that cost is known, and the run stays small.

Worked example: validations every 20 versions, and checkpoints, which take 5 s, every 10: of 30
versions 20 are measured. Every 40: 40 are. Every 40 in a run that never validated: 30.
"""

from __future__ import annotations

from math import lcm
from typing import Final

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs

#: Versions that are measured; fewer where a version is so large that it averages by itself.
VERSIONS: Final = 30
_RESPONSES: Final = 20_000
_FEWEST: Final = 8
#: Responses of a measured part that grows to a whole round, at most.
_MOST: Final = 100_000


def versions_of(calibration: Calibration, knobs: Knobs) -> int:
    """Return how many versions of a setting to measure."""
    size = knobs.update_prompts * knobs.sync_step * knobs.group_size
    count = max(_FEWEST, min(VERSIONS, _RESPONSES // size))
    for every in _rounds(calibration, knobs):
        if every <= count:
            return count // every * every
        if every * size <= _MOST:
            return every
    return count


def versions_of_both(calibration: Calibration, before: Knobs, after: Knobs) -> tuple[int, int]:
    """Return how many versions of each of two settings to measure.

    The same number where both validate and save equally often: what falls into it cancels out.
    """
    old, new = versions_of(calibration, before), versions_of(calibration, after)
    if _rounds(calibration, before) == _rounds(calibration, after):
        return (min(old, new),) * 2
    return old, new


def _rounds(calibration: Calibration, knobs: Knobs) -> list[int]:
    """Return the rounds to hold whole, the best first: of all, of validations, of checkpoints.

    What takes no time that is known, is not simulated.
    """
    costs = calibration.costs
    validates = knobs.validation_interval if costs.validation_requests else None
    saves = knobs.checkpoint_interval if costs.checkpoint_s else None
    both = [lcm(validates, saves)] if validates and saves else []
    return both + [every for every in (validates, saves) if every]
