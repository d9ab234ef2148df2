"""Stalls: a phase that never ends, no progress at all, a buffer that lacks its last samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rlinsight.analyzers.config import count
from rlinsight.analyzers.health.alarms import FLOOR_S, Alarm, limit_s

#: A buffer between this share of what is needed and all of it lacks its last samples.
NEAR_FULL = 0.9


def usual_step_s(spans: pl.DataFrame) -> float | None:
    """Return the median time between the ends of training steps, or a lone step's duration."""
    steps = spans.filter((pl.col("activity") == "step") & pl.col("end_ns").is_not_null())
    ends = steps["end_ns"].sort()
    widths = ends.diff().drop_nulls() if len(ends) > 1 else steps["end_ns"] - steps["start_ns"]
    median = widths.median()
    return median / 1e9 if isinstance(median, (int, float)) else None


def open_phases(spans: pl.DataFrame, now_ns: int, floor_s: float = FLOOR_S) -> list[Alarm]:
    """Return the phases that are open for too long, per lane the innermost.

    Worked example: update_actor usually takes 60 s; one open for 400 s exceeds 360 s.
    """
    innermost = (
        spans.filter(pl.col("end_ns").is_null() & (pl.col("start_ns") <= now_ns))
        .sort("start_ns")
        .group_by("lane", maintain_order=True)
        .last()
    )
    alike = pl.col("activity").is_in(innermost["activity"].unique().to_list())
    closed = (
        spans.filter(alike & pl.col("end_ns").is_not_null())
        .group_by("activity")
        .agg(usual_s=(pl.col("end_ns") - pl.col("start_ns")).median() / 1e9)
    )
    still = innermost.join(closed, on="activity", how="left", maintain_order="left")
    alarms = []
    for row in still.iter_rows(named=True):
        lasted, limit = (now_ns - row["start_ns"]) / 1e9, limit_s(row["usual_s"], floor_s)
        if lasted > limit:
            usual = f"{row['usual_s']:.1f} s" if row["usual_s"] is not None else "unknown"
            told = f"`{row['activity']}` on `{row['lane']}` is open for {lasted:.0f} s"
            evidence: dict[str, float | str] = {"activity": row["activity"]}
            if row["usual_s"] is not None:
                evidence["usual_s"] = row["usual_s"]
            alarms.append(
                Alarm("open_phase", row["lane"], row["start_ns"], lasted, limit,
                      f"{told}; usual is {usual}", evidence)
            )  # fmt: skip
    return alarms


def no_progress(
    spans: pl.DataFrame,
    requests: pl.DataFrame,
    samples: pl.DataFrame,
    now_ns: int,
    floor_s: float = FLOOR_S,
) -> list[Alarm]:
    """Return an alarm when no step, sample or response has been finished for too long.

    What goes on meanwhile (waiting in many short polls, counters, log lines) is no progress.
    """
    steps = spans.filter(pl.col("activity") == "step")
    ends = [steps["end_ns"].max(), requests["end_ns"].max(), samples["consumed_ns"].max()]
    known = [end for end in ends if isinstance(end, int)]
    if not known:
        return []
    last, limit = max(known), limit_s(usual_step_s(spans), floor_s)
    quiet = (now_ns - last) / 1e9
    if quiet <= limit:
        return []
    count = int(steps["end_ns"].count())
    told = f"no step, sample or response has been finished for {quiet:.0f} s"
    return [
        Alarm("no_progress", "run", last, quiet, limit, f"{told}, after {count} steps",
              {"steps": count})
    ]  # fmt: skip


def needed_prompts(config: Mapping[str, Any], mode: str | None) -> dict[str, int]:
    """Return the counter of the buffer that the trainer takes from, and what an update needs.

    Both in prompts. Empty where the configuration does not tell. Verl 0.9.1's fully_async trainer
    takes samples as they come, so that its queue is short however many are missing.
    """
    if mode not in ("sync", "colocate_async", "separate_async"):
        return {}
    batch = count(config, "data.train_batch_size")
    every = "trainer.v1.separate_async.parameter_sync_step"
    updates = count(config, every) if mode == "separate_async" else 1
    return {} if batch is None or updates is None else {"replay_finished": batch // updates}


def near_full_stall(
    counters: pl.DataFrame, counter: str, needed: int, now_ns: int, limit_s: float
) -> list[Alarm]:
    """Return an alarm when a buffer has long been just below the `needed` depth.

    A buffer of validation samples (lane `.../val`) is another one. Worked example
    (SkyRL#1173): depth 125 to 127 of 128 for 29 hours.
    """
    training = ~pl.col("lane").cast(pl.String).str.ends_with("/val")
    depth = counters.filter((pl.col("name") == counter) & training).sort("ts_ns")
    near = (depth["value"] >= NEAR_FULL * needed) & (depth["value"] < needed)
    if depth.is_empty() or not near[-1]:
        return []
    elsewhere = (~near).arg_true()
    first = int(elsewhere[-1]) + 1 if len(elsewhere) else 0
    tail = depth[first:]
    lasted = (now_ns - int(tail["ts_ns"][0])) / 1e9
    if lasted <= limit_s:
        return []
    low, high = (float(value) for value in tail["value"].sort().gather([0, -1]))
    told = f"`{counter}` stays at {low:.0f} to {high:.0f} of the {needed} needed"
    return [
        Alarm("near_full_stall", depth["lane"][-1], tail["ts_ns"][0], lasted, limit_s,
              f"{told} for {lasted:.0f} s: the last few never come",
              {"needed": needed, "lowest": low, "highest": high})
    ]  # fmt: skip
