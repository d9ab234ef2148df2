"""What verl itself reports about idleness, with the definition behind each figure."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.result import FrameworkFigure

_GEN, _STEP = "timing_s/gen", "timing_s/step"

#: Per pool: key as logged, and how to read it.
_LOGGED = {
    "trainer": (
        (
            "fully_async/trainer/idle_ratio",
            "sum of timing_s/gen over sum of timing_s/step of a sync cycle, over a window that "
            "is shifted by one local update",
        ),
    ),
    "rollouter": (
        (
            "fully_async/rollouter/idle_ratio",
            "only the last pause of a version counts, only after a full drain, and a pause that "
            "began before the version reads 0",
        ),
    ),
}


def figures(
    metrics: pl.DataFrame, pool: str, window: tuple[int, int]
) -> tuple[FrameworkFigure, ...]:
    """Return verl's own idle figures for `pool`, each the mean over the rows about `window`."""
    rows = {key: rows_about(metrics, key, window) for key, _ in _LOGGED[pool]}
    logged = [FrameworkFigure(key, _mean(rows[key]), meaning) for key, meaning in _LOGGED[pool]]
    if pool == "trainer":
        logged.append(_gen_over_step(metrics, window))
    return tuple(figure for figure in logged if figure.value is not None)


def rows_about(metrics: pl.DataFrame, key: str, window: tuple[int, int]) -> pl.Series:
    """Return the values of a logged metric whose rows tell of `window` (ns).

    A row is logged at the end of what it tells of, which began with the row before; it counts
    when the middle of that lies in the window. The first row is taken for as long as the second.
    """
    rows = metrics.filter((pl.col("key") == key) & pl.col("value").is_finite()).sort("ts_ns")
    ends = pl.col("ts_ns")
    length = ends.diff().fill_null(strategy="backward").fill_null(0)
    middle = ends - length // 2
    return rows.filter(middle.is_between(*window))["value"]


def _mean(values: pl.Series) -> float | None:
    mean = values.mean()
    return mean if isinstance(mean, float) else None


def _gen_over_step(metrics: pl.DataFrame, window: tuple[int, int]) -> FrameworkFigure:
    gen, step = (rows_about(metrics, key, window) for key in (_GEN, _STEP))
    return FrameworkFigure(
        f"{_GEN} / {_STEP}",
        float(gen.sum()) / float(step.sum()) if len(gen) and step.sum() else None,
        "the driver's wait for samples over the step, both summed; hybrid replicas may be "
        "generating on the trainer's devices meanwhile",
    )
