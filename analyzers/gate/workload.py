"""Whether a run did the same work as its history: the length of its responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rlinsight.analyzers.gate.comparison import compare
from rlinsight.analyzers.gate.metrics import Series
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import Workload
from rlinsight.analyzers.gate.settings import MetricSettings, Settings

#: A mean length within this of the reference is the same work; beyond it, it is said.
_CORRIDOR: Final = MetricSettings(0.05, 0.0, "either", match_length=False)


def workload(
    new: Observation, history: Sequence[Observation], settings: Settings
) -> Workload | None:
    """Return how the response length of `new` compares; None where it is not known.

    Lengths can be matched up to `max_extrapolation` beyond those of the baseline's windows.
    """
    mine, theirs = _lengths(new), [s for run in history if (s := _lengths(run)) is not None]
    if mine is None or not theirs:
        return None
    found = compare(mine, theirs, _CORRIDOR, settings)
    known = np.concatenate([series.amount / series.per for series in theirs])
    slack = settings.max_extrapolation * found.raw_reference
    return Workload(
        mean_tokens=found.value,
        reference_tokens=found.reference,
        change=found.relative,
        low=found.low / found.reference if found.reference else None,
        high=found.high / found.reference if found.reference else None,
        drifted=found.outside and found.p_value < settings.alpha,
        matchable=bool(known.min() - slack <= found.value <= known.max() + slack),
    )


def _lengths(run: Observation) -> Series | None:
    pairs = [
        (tokens, count)
        for tokens, count in zip(
            run.windows.get("lengths", ()), run.windows.get("lengths_known", ()), strict=True
        )
        if tokens is not None and count
    ]
    if not pairs:
        return None
    amount, per = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    return Series(amount, per)
