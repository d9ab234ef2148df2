"""Which training step a logged value belongs to.

Problem: fully_async logs under the parameter version, the other modes under the training step.
Two runs that sync after different numbers of updates then have other steps at the same place of
their training. A version v has seen the updates that were made before it: the last step that
worked on an older version is its place on the axis of steps.

Worked example: a sync every 4 steps; steps 1 to 4 work on version 0, 5 to 8 on version 1. What is
logged under version 2 belongs to step 8, what is logged under version 0 to step 0. In a run resumed
at step 401 on version 100, what is logged under version 100 belongs to step 400; what is logged
without a version, or under an older one, has no place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl

from rlinsight.analyzers.config import count

Axis = Literal["parameter version", "training step"]


def on_step_axis(
    metrics: pl.DataFrame, steps: pl.DataFrame, mode: str | None, config: Mapping[str, Any]
) -> tuple[pl.DataFrame, Axis]:
    """Return `metrics` with `step` as the training step, and what `step` is now.

    `steps` are the driver's training steps. Where none is recorded, the configured number of
    updates between syncs stands for them; without that, versions stay versions.
    """
    if mode != "fully_async":
        return metrics, "training step"
    worked = steps.filter(pl.col("step").is_not_null() & pl.col("param_version").is_not_null())
    if not worked.is_empty():
        version, step = (pl.col(name).cast(pl.Int64) for name in ("param_version", "step"))
        # The first version was there before the first step, in a resumed run as well.
        known = pl.concat([
            worked.select(version=version.min(), step=step.min() - 1),
            worked.group_by(version=version + 1).agg(step=step.max()).sort("version"),
        ])  # fmt: skip
        placed = (
            metrics.with_columns(version=pl.col("step").cast(pl.Int64))
            .drop("step")
            .sort("version", maintain_order=True)
            .join_asof(known, on="version")
        )
        return placed.select(metrics.columns), "training step"
    each = count(config, "async_training.trigger_parameter_sync_step")
    if each is None:
        return metrics, "parameter version"
    return metrics.with_columns(step=pl.col("step") * each), "training step"
