"""Many metrics, one verdict: p-values adjusted so that a check rarely cries wolf.

Benjamini and Hochberg (1995) by default. When nothing changed, every failure is a false one,
so the false discovery rate is the chance that any metric fails: at most `alpha` for independent
and positively dependent metrics, which those of one run are. When something did get worse the build
is red anyway, and several metrics that move together are caught sooner than Holm (1979) would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlinsight.analyzers.gate.settings import Correction


def adjusted(p_values: Sequence[float], correction: Correction) -> list[float]:
    """Return the adjusted p-values, in the order given; each is compared with alpha.

    Worked example: 0.01, 0.02, 0.03 by `bh`: 0.01 x 3/1 = 0.03, 0.02 x 3/2 = 0.03,
    0.03 x 3/3 = 0.03; by `holm`: 0.03, 0.04, 0.04.
    """
    count = len(p_values)
    if correction == "none" or not count:
        return list(p_values)
    order = np.argsort(p_values)
    ranked = np.asarray(p_values, float)[order]
    if correction == "bh":
        scaled = ranked * count / np.arange(1, count + 1)
        monotone = np.minimum.accumulate(scaled[::-1])[::-1]
    else:
        scaled = ranked * np.arange(count, 0, -1)
        monotone = np.maximum.accumulate(scaled)
    found = np.empty(count)
    found[order] = np.minimum(monotone, 1.0)
    return [float(value) for value in found]
