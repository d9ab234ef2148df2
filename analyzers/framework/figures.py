"""What verl itself reports about idleness, with the definition behind each figure."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.result import FrameworkFigure

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


def figures(metrics: pl.DataFrame, pool: str) -> tuple[FrameworkFigure, ...]:
    """Return verl's own idle figures for `pool`, each the mean over the logged steps."""
    logged = [
        FrameworkFigure(key, mean_of(metrics, key), meaning) for key, meaning in _LOGGED[pool]
    ]
    if pool == "trainer":
        logged.append(_gen_over_step(metrics))
    return tuple(figure for figure in logged if figure.value is not None)


def mean_of(metrics: pl.DataFrame, key: str) -> float | None:
    """Return the mean of a logged metric, None where it was not logged."""
    value = metrics.filter((pl.col("key") == key) & pl.col("value").is_finite())["value"].mean()
    return value if isinstance(value, float) else None


def _gen_over_step(metrics: pl.DataFrame) -> FrameworkFigure:
    gen, step = (_sum_of(metrics, key) for key in ("timing_s/gen", "timing_s/step"))
    return FrameworkFigure(
        "timing_s/gen / timing_s/step",
        gen / step if gen is not None and step else None,
        "the driver's wait for samples over the step, both summed; hybrid replicas may be "
        "generating on the trainer's devices meanwhile",
    )


def _sum_of(metrics: pl.DataFrame, key: str) -> float | None:
    logged = metrics.filter(pl.col("key") == key)["value"]
    return float(logged.sum()) if len(logged) else None
