"""Response lengths from a recorded trace, in the form that a run's processes draw from."""

from __future__ import annotations

from typing import Final

import polars as pl

from rlinsight.errors import ConfigError
from rlinsight.runs.emulated.cost import Lengths

_QUANTILES: Final = 101


def resolved(lengths: Lengths) -> Lengths:
    """Return the lengths with the trace they name replaced by its quantiles.

    Raises TraceError for a trace that cannot be read, ConfigError for one without samples.
    """
    if lengths.trace is None:
        return lengths
    import rlinsight

    samples = rlinsight.open(lengths.trace).samples
    known = samples.select(pl.col("response_tokens").drop_nulls()).collect().to_series()
    known = known.filter(known > 0)
    if known.is_empty():
        raise ConfigError(
            f"`emulated.lengths.trace`: expected samples with response tokens in "
            f"`{lengths.trace}`, found none"
        )
    points = [known.quantile(i / (_QUANTILES - 1), "linear") for i in range(_QUANTILES)]
    quantiles = [round(point) for point in points if point is not None]
    return lengths.model_copy(update={"trace": None, "quantiles": quantiles})
