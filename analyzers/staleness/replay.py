"""The wait for samples that would have been, had only fresh ones counted.

The replay of version window v keeps everything that was recorded but the age limit:

1. Fresh units are those generated at version >= v from their first token, whoever consumed
   them later, in the order in which they were complete. Rollouts run as recorded.
2. The trainer is ready for the first trigger step of the window when it was recorded to be.
   Step i needs as many units as it consumed; it takes the next fresh ones in that order and
   waits until the last of them is complete.
3. What lay between that moment and the end of the wait (queue, polling) is the step's
   delivery; it is not an effect of staleness and is kept as recorded.
4. Between two waits the trainer works as long as recorded, so a delay moves all later steps
   of the window. The next window starts from its own record again.

With nothing but fresh units, taken in the order of completion, W0 = W by construction.

Worked example, seconds. Version 5, two steps of 2 units, 3 s of work each. Recorded: step 1
is ready at 10 and gets two old units at once; step 2 is ready at 13 and waits until 16 for
units complete at 14 and 16. W = 0 + 3. Fresh units are complete at 14, 16, 19 and 20. Replay:
step 1 waits from 10 to 16; step 2 is ready at 19 and waits until 20. W0 = 6 + 1 = 7, and the
coverage is 1 - 3/7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.staleness.trigger_steps import Trigger

Ints = npt.NDArray[np.int64]

#: A sample complete this long after it was consumed is more than clocks that differ.
_CLOCK_TOLERANCE_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class WindowCoverage:
    """Coverage of one version window; `covered_steps` are the trigger steps (from 1) that were
    fed wholly with samples of older versions.

    `unknown` says why there is no `coverage`, if there is none.
    """

    version: int
    trigger_steps: int
    wait_s: float
    fresh_only_wait_s: float | None
    coverage: float | None
    covered_steps: tuple[int, ...]
    unknown: str | None = None


def replay_windows(triggers: Sequence[Trigger], units: pl.DataFrame) -> tuple[WindowCoverage, ...]:
    """Return the coverage of each version that `triggers` (in time order) are of.

    `units` as returned by `trigger_steps`.
    """
    pool = _Pool(units)
    by_version = sorted(triggers, key=lambda t: (t.version, t.end_ns))
    return tuple(
        _replayed(version, list(steps), pool)
        for version, steps in groupby(by_version, key=lambda t: t.version)
    )


class _Pool:
    """Units with known version and time, in order of completion."""

    def __init__(self, units: pl.DataFrame) -> None:
        known = units.filter(
            pl.col("version").is_not_null() & pl.col("available_ns").is_not_null()
        ).sort("available_ns")
        self.available: Ints = known["available_ns"].to_numpy()
        self.version: Ints = known["version"].cast(pl.Int64).to_numpy()
        # The place of the first unit of a version >= v, so that a search needs not begin at 0.
        self.versions, first = np.unique(self.version, return_index=True)
        self.first_of: Ints = np.minimum.accumulate(first[::-1])[::-1]

    def fresh(self, version: int, needed: int) -> Ints:
        """Return when the first `needed` units of `version` or newer were complete."""
        place = int(np.searchsorted(self.versions, version))
        start = int(self.first_of[place]) if place < len(self.first_of) else len(self.available)
        size, found, missing = max(2 * needed, 1024), [np.empty(0, np.int64)], needed
        while start < len(self.available) and missing > 0:
            chunk = slice(start, start + size)
            hits = self.available[chunk][self.version[chunk] >= version][:missing]
            found.append(hits)
            start, size, missing = start + size, 2 * size, missing - len(hits)
        return np.concatenate(found)


def _replayed(version: int, steps: list[Trigger], pool: _Pool) -> WindowCoverage:
    wait_ns = sum(step.wait_ns for step in steps)
    fresh_only_ns, unknown = _fresh_only_wait(version, steps, pool)
    if fresh_only_ns == 0:
        unknown = "there was nothing to wait for, even with fresh samples only"
    return WindowCoverage(
        version=version,
        trigger_steps=len(steps),
        wait_s=wait_ns / 1e9,
        fresh_only_wait_s=None if fresh_only_ns is None else fresh_only_ns / 1e9,
        coverage=1 - wait_ns / fresh_only_ns if fresh_only_ns else None,
        covered_steps=tuple(s.position for s in steps if s.stale_units == s.units),
        unknown=unknown,
    )


def _fresh_only_wait(
    version: int, steps: list[Trigger], pool: _Pool
) -> tuple[int | None, str | None]:
    """Return W0 in nanoseconds, or None and the reason."""
    unclear = sum(s.available_ns is None or s.stale_units is None for s in steps)
    if unclear:
        return None, f"version or time of samples is unknown in {unclear} of {len(steps)} steps"
    absurd = sum((s.available_ns or 0) > s.end_ns + _CLOCK_TOLERANCE_NS for s in steps)
    if absurd:
        return (
            None,
            f"samples were consumed before they were complete in {absurd} of {len(steps)} steps",
        )
    needed = np.cumsum([step.units for step in steps])
    fresh = pool.fresh(version, int(needed[-1]))
    if len(fresh) < needed[-1]:
        return None, (
            f"the recording ends with {len(fresh)} of {needed[-1]} samples of version >= {version}"
        )
    delay = waited = 0
    for step, complete in zip(steps, fresh[needed - 1].tolist(), strict=True):
        ready = step.ready_ns + delay
        delivery = step.end_ns - max(step.ready_ns, step.available_ns or 0)
        wait = max(ready, complete) + delivery - ready
        waited += wait
        delay += wait - step.wait_ns
    return waited, None
