"""Idle intervals that end at a poll: the work was there, nobody looked yet.

verl polls in three places: the rollouter's monitor looks every 10 s whether a pause may end,
the v1 replay buffer every 2 s whether a batch is complete, queue waits every 1 s. It is recognized
from durations alone: if waits end at polls, they are multiples of the period plus a small constant,
so their phases 2 pi d / T crowd together. Rayleigh's test: with n waits and mean resultant length
R, p = exp(-n R^2) that they fall anywhere.

Worked example (verl's sync trainer on a small model): gen took 4.016, 2.011, 2.012, 2.014 s:
four multiples of 2 s plus 13 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Poll periods of verl 0.9.1 in seconds, longest first: a multiple of 10 is also one of 2.
POLLS_S = {10.0: "resume check of the rollouter", 2.0: "v1 replay buffer", 1.0: "queue poll"}
#: Waits whose phases are this concentrated (1 = all the same) end at a poll.
MIN_RESULTANT = 0.9
SIGNIFICANCE = 0.05
MIN_WAITS = 3


@dataclass(frozen=True)
class PollPeriod:
    """Waits that are multiples of a poll period.

    `offset_s` is the constant on top (the work after the poll), `mean_cost_s` half a period:
    what polling costs on average, if the work becomes ready at any time.
    """

    period_s: float
    what: str
    waits: int
    offset_s: float
    p_value: float
    mean_cost_s: float


def poll_period(durations_s: Sequence[float]) -> PollPeriod | None:
    """Return the longest known poll period that the waits are multiples of, None if there is none.

    Waits shorter than half a period say nothing about it and are left out. They must be of two
    different multiples: equal waits may simply be equal work.
    """
    waits = np.asarray([d for d in durations_s if np.isfinite(d)], dtype=np.float64)
    for period, what in POLLS_S.items():
        long_enough = waits[waits > period / 2]
        multiples = np.unique(np.round(long_enough / period))
        if len(long_enough) < MIN_WAITS or len(multiples) < 2:
            continue
        mean = np.exp(2j * np.pi * long_enough / period).mean()
        resultant, offset = float(abs(mean)), float(np.angle(mean)) * period / (2 * np.pi)
        p_value = float(np.exp(-len(long_enough) * resultant**2))
        # The poll is over before the wait is: the constant on top is small and not negative.
        at_poll = -0.02 * period <= offset <= 0.15 * period
        if at_poll and resultant >= MIN_RESULTANT and p_value < SIGNIFICANCE:
            return PollPeriod(period, what, len(long_enough), offset, p_value, period / 2)
    return None
