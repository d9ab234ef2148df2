"""Logged values that cannot be what their name says: kept as they are, and named."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.framework.defects import Defect

#: Keys that are shares. A perplexity ratio, for one, is not.
_SHARES = r"(idle_ratio|clip_ratio|aborted_ratio|partial_ratio|utilization|clipfrac\w*|/mfu/\w+)$"
_TIMES = r"(^timing_s/|_time$|_time_s$|/wait\w*$)"
#: Sleeps, polls and timeouts at which a measured time is suspicious, in seconds.
_CONSTANTS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 600.0, 1800.0)
_MIN_CONSTANT_ROWS = 3


def ratios_outside_unit(metrics: pl.DataFrame) -> tuple[Defect, ...]:
    """Return the shares that were logged below 0 or above 1.

    verl's rollouter idle ratio does so from a stale start time. Worked example (verl#5749):
    1.37 is kept, shown and not believed.
    """
    wrong = metrics.filter(
        pl.col("key").str.contains(_SHARES)
        & pl.col("value").is_finite()
        & ~pl.col("value").is_between(0, 1)
    )
    return tuple(_outside(part) for part in _by_key(wrong))


def _outside(part: pl.DataFrame) -> Defect:
    key, low, high = part["key"][0], *_range(part)
    worst = high if high > 1 else low
    told = f"`{key}` is a share and reads {worst:.3g} in {len(part)} row(s)"
    evidence: dict[str, float | str] = {"rows": len(part), "lowest": low, "highest": high}
    reference = "verl#5749" if key.endswith("rollouter/idle_ratio") else None
    return Defect("ratio_outside_unit", key, told, _steps(part), evidence, reference)


def older_than_run(metrics: pl.DataFrame, started_ns: int) -> tuple[Defect, ...]:
    """Return the logged times that are longer than the run was old when they were logged.

    Sums over workers that run side by side are left out. Worked example (TRL#6489): an
    enqueue time that defaults to 0 makes a wait of 1.7e9 s.
    """
    times = metrics.filter(
        pl.col("key").str.contains(_TIMES) & ~pl.col("key").str.contains("agent_loop")
    ).with_columns(age_s=(pl.col("ts_ns") - started_ns) / 1e9)
    wrong = times.filter(pl.col("value").is_finite() & (pl.col("value") > pl.col("age_s") + 1.0))
    return tuple(_too_old(part) for part in _by_key(wrong))


def _too_old(part: pl.DataFrame) -> Defect:
    key, (_, high) = part["key"][0], _range(part)
    age = float(part.sort("value")["age_s"][-1])
    told = f"`{key}` reads {high:.6g} s when the run was {age:.0f} s old: a clock, not a duration"
    evidence: dict[str, float | str] = {"rows": len(part), "value": high, "age_s": age}
    return Defect("older_than_run", key, told, _steps(part), evidence)


def constant_values(metrics: pl.DataFrame) -> tuple[Defect, ...]:
    """Return the times that sit exactly at a round constant in at least half of their rows.

    That is a cap or a sleep, not a measurement. Worked example: waits of 20.000, 20.000,
    3.1 and 20.000 s: capped at 20 s.
    """
    times = metrics.filter(pl.col("key").str.contains(_TIMES) & pl.col("value").is_finite())
    nearest = pl.col("value").round(0)
    exact = (pl.col("value") - nearest).abs() <= 1e-4 * nearest
    capped = times.with_columns(at=pl.when(exact & nearest.is_in(_CONSTANTS)).then(nearest))
    rows = (
        capped.group_by("key")
        .agg(
            rows=pl.len(),
            at=pl.col("at").drop_nulls().mode().first(),
            hits=pl.col("at").drop_nulls().unique_counts().max(),
            steps=pl.col("step").filter(pl.col("at").is_not_null()),
        )
        .filter((pl.col("hits") >= _MIN_CONSTANT_ROWS) & (2 * pl.col("hits") >= pl.col("rows")))
        .sort("key")
    )
    return tuple(
        Defect(
            "constant_value",
            row["key"],
            f"`{row['key']}` is exactly {row['at']:g} s in {row['hits']} of {row['rows']} rows",
            tuple(step for step in row["steps"] if step is not None),
            {"constant_s": row["at"], "hits": row["hits"], "rows": row["rows"]},
        )
        for row in rows.iter_rows(named=True)
    )


def _by_key(rows: pl.DataFrame) -> list[pl.DataFrame]:
    return rows.sort("key", "ts_ns").partition_by("key", maintain_order=True)


def _range(part: pl.DataFrame) -> tuple[float, float]:
    values = part["value"].to_numpy()
    return float(values.min()), float(values.max())


def _steps(part: pl.DataFrame) -> tuple[int, ...]:
    return tuple(part["step"].drop_nulls().to_list())
