"""verl's rollouter idle ratio against the recorded pauses, and what both ratios hide."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.analyzers.framework.defects import Defect
from rlinsight.analyzers.tables import attr
from rlinsight.trace.topology import Topology

_ROLLOUTER_IDLE = "fully_async/rollouter/idle_ratio"
_TRAINER_IDLE = "fully_async/trainer/idle_ratio"
_VERSION_S = "fully_async/rollouter/version_time"

#: An idle ratio below this is near zero.
NEAR_ZERO = 0.05
#: A trainer that spends this share of its steps updating is busy.
BUSY_UPDATE = 0.5
#: The monitor that ends a lost pause looks this often.
MONITOR_S = 10.0


@dataclass(frozen=True)
class IdleFigures:
    """verl's two idle ratios beside what was recorded, over the same time.

    `rollouter_paused_ratio` is the share of time in which the rollouter admitted nothing new,
    `rollouter_drained_ratio` that in which in addition nothing ran any more. `bound` is
    `trainer` where both ratios are near zero although the rollouter paused and the trainer
    updates most of the time; None where this pattern is not there.
    """

    trainer_idle_ratio: float | None
    rollouter_idle_ratio: float | None
    pauses: int
    rollouter_paused_ratio: float | None
    rollouter_drained_ratio: float | None
    update_share: float | None
    queue_at_cap: bool | None
    framework_disagrees: bool
    bound: str | None
    told: str | None


def diagnose(
    *,
    trainer_idle_ratio: float | None,
    rollouter_idle_ratio: float | None,
    pauses: int,
    update_share: float | None,
    queue_at_cap: bool | None = None,
    paused_ratio: float | None = None,
    drained_ratio: float | None = None,
) -> IdleFigures:
    """Return what two idle ratios near zero mean beside pauses and a busy trainer (verl#6693).

    The run looks perfectly overlapped and is slow: the rollouter's ratio keeps one pause only
    and only if it was drained, so pauses vanish. A rollouter that pauses for its quota or a
    full queue while the trainer updates is waiting for the trainer.

    Worked example: ratios 0.01 and 0, two pauses, 90 % of the steps in update_actor: bound by
    the trainer, and the rollouter's idle ratio is not 0.
    """
    both = (trainer_idle_ratio, rollouter_idle_ratio)
    near_zero = all(ratio is not None and abs(ratio) < NEAR_ZERO for ratio in both)
    paused = pauses > 0 and (paused_ratio is None or paused_ratio > NEAR_ZERO)
    busy = queue_at_cap is True or (update_share is not None and update_share >= BUSY_UPDATE)
    disagrees = near_zero and paused
    told = None
    if disagrees and busy:
        told = (
            f"both idle ratios are near zero ({trainer_idle_ratio:.2g}, {rollouter_idle_ratio:.2g})"
            f", yet the rollouter paused {pauses} times and waits for the trainer"
        )
    return IdleFigures(
        trainer_idle_ratio=trainer_idle_ratio,
        rollouter_idle_ratio=rollouter_idle_ratio,
        pauses=pauses,
        rollouter_paused_ratio=paused_ratio,
        rollouter_drained_ratio=drained_ratio,
        update_share=update_share,
        queue_at_cap=queue_at_cap,
        framework_disagrees=disagrees,
        bound="trainer" if told else None,
        told=told,
    )


def idle_figures(
    metrics: pl.DataFrame,
    spans: pl.DataFrame,
    counters: pl.DataFrame,
    topology: Topology,
    window: tuple[int, int],
) -> IdleFigures | None:
    """Return verl's idle ratios beside the recorded pauses of `window` (ns).

    None where verl logged neither ratio (it does so in fully_async).
    """
    inside = metrics.filter(pl.col("ts_ns").is_between(*window))
    ratios = [_mean(inside, key) for key in (_TRAINER_IDLE, _ROLLOUTER_IDLE)]
    if ratios == [None, None] or window[0] >= window[1]:
        return None
    pauses = _clipped(_pauses(spans, topology), window)
    width = window[1] - window[0]
    return diagnose(
        trainer_idle_ratio=ratios[0],
        rollouter_idle_ratio=ratios[1],
        pauses=len(pauses),
        paused_ratio=_covered(pauses, "start_ns") / width,
        drained_ratio=_covered(pauses.drop_nulls("idle_ns"), "idle_ns") / width,
        update_share=_update_share(spans, window),
        queue_at_cap=_at_cap(counters.filter(pl.col("ts_ns") < window[1])),
    )


def one_pause_only(metrics: pl.DataFrame, spans: pl.DataFrame, topology: Topology) -> Defect | None:
    """Return the defect that verl's rollouter idle ratio misses pauses, with the versions.

    The ratio of a version is 1 - (last drained idle start - version start) / version time,
    or 0 when the pause began before the version or was never drained. Named are versions with
    pauses over more than 5 % of them, whose ratio is near zero, or less than half of the time
    in which nothing ran any more. While a pause drains, some devices still work, so its whole
    length is no idle time either: evidence holds both shares.

    Worked example: a version of 10 s, paused at 2-4 and 6-10 but drained in neither: verl
    says 0, the rollouter was paused for 0.6.
    """
    pauses = _pauses(spans, topology)
    rows = _version_rows(metrics)
    if pauses.is_empty() or rows.is_empty():
        return None
    found = []
    for step, value, start, end in rows.iter_rows():
        mine = _clipped(pauses, (start, end))
        share = _covered(mine, "start_ns") / (end - start)
        drained = _covered(mine.drop_nulls("idle_ns"), "idle_ns") / (end - start)
        if share > NEAR_ZERO and (value < NEAR_ZERO or value < drained / 2):
            found.append((share, step, value, drained))
    if not found:
        return None
    share, step, value, drained = max(found)
    told = (
        f"near zero or too low in {len(found)} of {len(rows)} versions; in version {step} it reads "
        f"{value:.2f} while the rollouter admitted nothing for {share:.0%} of the time"
    )
    evidence: dict[str, float | str] = {
        "versions": len(rows),
        "versions_too_low": len(found),
        "worst_logged": value,
        "worst_paused_ratio": share,
        "worst_drained_ratio": drained,
    }
    steps = tuple(sorted(row[1] for row in found if row[1] is not None))
    return Defect("one_pause_only", _ROLLOUTER_IDLE, told, steps, evidence, "verl#6693")


def lost_resumes(spans: pl.DataFrame, markers: pl.DataFrame, topology: Topology) -> Defect | None:
    """Return the defect that a sync's resume was lost, with how long the monitor took.

    `reset_staleness` wakes the processor before it has the new count; the processor sees the
    old one, pauses again, and sleeps until the monitor looks, at most 10 s later. Decided from
    the markers `lost_resume`; time lost = the pause's end - the marker.

    Worked example: lost at 30 s, the pause ends at 37 s: 7 s lost.
    """
    lost = markers.filter(pl.col("kind") == "lost_resume").select("ts_ns").sort("ts_ns")
    pauses = _pauses(spans, topology).drop_nulls("end_ns").sort("start_ns")
    within = lost.join_asof(pauses, left_on="ts_ns", right_on="start_ns", coalesce=False)
    seconds = within.filter(pl.col("end_ns") >= pl.col("ts_ns")).select(
        s=(pl.col("end_ns") - pl.col("ts_ns")) / 1e9
    )["s"]
    if seconds.is_empty():
        return None
    total, longest = float(seconds.sum()), float(seconds.sort()[-1])
    told = f"{len(seconds)} resume(s) were lost; the monitor ended the pauses {total:.1f} s late"
    evidence: dict[str, float | str] = {
        "lost": len(seconds), "lost_s": total, "longest_s": longest, "monitor_s": MONITOR_S,
    }  # fmt: skip
    return Defect("lost_resume", "rollouter", told, (), evidence)


def _pauses(spans: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Return the rollouter's pauses (start_ns, end_ns, idle_ns: nothing ran any more)."""
    lanes = [lane.id for lane in topology.lanes if lane.role == "rollouter"]
    paused = spans.filter(pl.col("lane").is_in(lanes) & (pl.col("activity") == "paused"))
    return paused.select(
        "start_ns", "end_ns", idle_ns=attr("idle_start_ns").cast(pl.Int64, strict=False)
    )


def _clipped(pauses: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    start, end = window
    return pauses.with_columns(
        pl.col("start_ns", "idle_ns").clip(lower_bound=start),
        pl.col("end_ns").fill_null(end).clip(upper_bound=end),
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _covered(pauses: pl.DataFrame, since: str) -> int:
    united = union(pauses.select(start_ns=since, end_ns="end_ns"))
    return int((united["end_ns"] - united["start_ns"]).sum())


def _version_rows(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return (step, value, start_ns, ts_ns) of verl's ratio and the version it is about."""
    rows = metrics.filter((pl.col("key") == _ROLLOUTER_IDLE) & pl.col("value").is_finite())
    times = metrics.filter(pl.col("key") == _VERSION_S).select("ts_ns", seconds="value")
    began = pl.col("ts_ns") - (pl.col("seconds") * 1e9).cast(pl.Int64)
    return (
        rows.join(times.unique("ts_ns"), on="ts_ns", how="left")
        .sort("ts_ns")
        .with_columns(start_ns=pl.coalesce(began, pl.col("ts_ns").shift(1)))
        .filter(pl.col("start_ns") < pl.col("ts_ns"))
        .select("step", "value", "start_ns", "ts_ns")
    )


def _update_share(spans: pl.DataFrame, window: tuple[int, int]) -> float | None:
    inside = spans.filter(
        (pl.col("lane") == "trainer") & pl.col("start_ns").is_between(*window)
    ).drop_nulls("end_ns")
    width = (pl.col("end_ns") - pl.col("start_ns")).sum()
    sums = dict(inside.group_by("activity").agg(width).iter_rows())
    return sums.get("update_actor", 0) / sums["step"] if sums.get("step") else None


def _at_cap(counters: pl.DataFrame) -> bool | None:
    """Whether the queue, or the staleness count, reached what it may hold."""
    highest = dict(counters.group_by("name").agg(pl.col("value").max()).iter_rows())
    cap = highest.get("max_required_samples")
    used = [highest[name] for name in ("queue_depth", "staleness_samples") if name in highest]
    return None if cap is None or not used else max(used) >= cap


def _mean(metrics: pl.DataFrame, key: str) -> float | None:
    values = metrics.filter((pl.col("key") == key) & pl.col("value").is_finite())["value"]
    mean = values.mean()
    return mean if isinstance(mean, float) else None
