"""The verdict as one paragraph: alarm, bound, largest bubble, what it costs, confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.units import number, percent

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report

_BOUND = {
    "rollout": "The run is rollout-bound: the trainer waits for samples more than the rollouts "
    "wait for it.",
    "trainer": "The run is trainer-bound: the rollouts wait more than the trainer does.",
    "pipeline": "The run alternates: training and generation take turns, so one waits for the "
    "other.",
    "balanced": "The run is balanced: both sides idle about equally.",
    "unknown": "What bounds the run cannot be told from this trace.",
}

#: What each cause means, for a reader who sees it for the first time.
CAUSES = {
    "wait_samples": "the trainer waits for samples",
    "long_tail": "the trainer waits for the last long responses of its batch",
    "validation": "a validation holds the side up",
    "weight_sync_wait": "one side waits for the weight sync",
    "checkpoint_wait": "a checkpoint holds the side up",
    "staleness_quota": "the rollouter has used up its staleness quota",
    "queue_full": "the queue is full",
    "no_prompts": "the replicas have no prompts to work on",
    "drain": "running requests are drained",
    "lost_resume": "a resume was lost, and only the 10 s monitor ended the pause",
    "poll_interval": "everything was there, and the next poll was waited for",
    "driver": "the driver is busy with something that is no training phase",
    "paused": "the rollouter is paused, reason not recorded",
    "unknown": "no record tells why",
}


def paragraph(report: Report) -> str:
    """Return the verdict in sentences, the most urgent first."""
    return " ".join(sentences(report))


def sentences(report: Report) -> list[str]:
    """Return the sentences of the verdict; the first says what matters most."""
    verdict = report.verdict
    if verdict.alarm is not None:
        still = "There is no verdict on tuning while the run stands still."
        return [f"ALARM: {verdict.alarm}.", still]
    parts = [_BOUND[verdict.bound]]
    if verdict.cause is not None:
        parts.append(
            f"The largest bubble is the {verdict.owner}'s: {percent(verdict.share)} of its device "
            f"time, {CAUSES[verdict.cause]} ({verdict.cause})."
        )
        parts.append(_ceiling(verdict.owner, verdict.ceiling))
    if verdict.slow_replica is not None:
        slow = verdict.slow_replica
        parts.append(
            f"{slow.lane} needs {number(slow.slowdown)} times its peers' time per token at equal "
            "load: mend that first, it may be all there is to it."
        )
    parts.append(f"Confidence: {verdict.confidence}{_because(verdict.doubts)}.")
    return parts


def _ceiling(owner: str | None, ceiling: float | None) -> str:
    if ceiling is None:
        return "What it costs cannot be told."
    what = "throughput" if owner == "trainer" else "throughput per device"
    return f"If it vanished, {what} would rise by {percent(ceiling)} at most."


def _because(doubts: tuple[str, ...]) -> str:
    return f" ({'; '.join(doubts)})" if doubts else ""
