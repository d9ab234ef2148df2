"""How unevenly ranks shared the tokens of a step, as the framework reported it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from rlinsight.analyzers.result import StepRow


def reported_dp_imbalance(metrics: pl.DataFrame | None, steps: pl.Series) -> float | None:
    """Return max / mean - 1 of the ranks' tokens that verl reports, mean over `steps`.

    After balancing (`global_seqlen/balanced_max`) where reported, else before. Where several
    updates make a step, verl takes the maximum over them and the mean over them, so the
    figure is then an upper bound.
    """
    if metrics is None:
        return None
    table = _rank_tokens(metrics, steps)
    found = table.select(pl.col("uneven").mean()).item()
    return None if found is None else float(found)


def step_sizes(steps: Sequence[StepRow], metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the table that `growth.step_growth` takes: a row a step, null where unknown."""
    waited = [row.activities.get("wait_samples") for row in steps]
    table = pl.DataFrame(
        [
            (row.step, row.duration_s, None if s is None else row.duration_s - s, row.tokens)
            for row, s in zip(steps, waited, strict=True)
        ],
        schema={
            "step": pl.Int32,
            "seconds": pl.Float64,
            "work_seconds": pl.Float64,
            "tokens": pl.Int64,
        },
        orient="row",
    )
    uneven = _rank_tokens(metrics, table["step"]).select("step", dp_imbalance="uneven")
    return table.join(uneven, on="step", how="left", maintain_order="left")


def _rank_tokens(metrics: pl.DataFrame, steps: pl.Series) -> pl.DataFrame:
    """Return max / mean - 1 of the ranks' tokens (`uneven`) per logged step."""
    keys = ["global_seqlen/balanced_max", "global_seqlen/max", "global_seqlen/mean"]
    mine = metrics.filter(
        pl.col("key").is_in(keys) & pl.col("step").is_in(steps.unique().to_list())
    )
    values = {
        key: mine.filter(pl.col("key") == key).select("step", pl.col("value").alias(key))
        for key in keys
    }
    table = values[keys[2]].join(values[keys[0]], on="step", how="left")
    table = table.join(values[keys[1]], on="step", how="left")
    uneven = pl.coalesce(keys[0], keys[1]) / pl.col(keys[2]) - 1
    return table.filter(pl.col(keys[2]) > 0).select("step", uneven=uneven)
