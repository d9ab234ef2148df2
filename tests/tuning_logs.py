"""Logs of a tuning, written by hand: findings, runs and what was decided about them."""

from __future__ import annotations

from rlinsight.runs.tune.change import changed
from rlinsight.runs.tune.log import Candidate, Log, Measured, Record

DOCUMENT = {"mode": "fully_async", "resources": {"rollout": {"nodes": 4}}, "overrides": {}}


def finding(
    rule: str, *overrides: str, tier: int = 1, costs_quality: bool = False, **flags: bool
) -> Candidate:
    return Candidate(
        rule=rule, tier=tier, variables="resources", says=f"{rule} says so.",
        evidence=("idle 30 %",), overrides=overrides, predicted=(0.2, 0.1, 0.3), risk="none",
        verify="it rises", falsifier="it stays", costs_quality=costs_quality,
        **flags,
    )  # fmt: skip


FEWER = finding("fewer", "rollout.nnodes=3")
STALER = finding("staler", "async_training.staleness_threshold=0.5", tier=4, costs_quality=True)


def record(number: int, kind: str, decision: str | None, *candidates: Candidate, **more) -> Record:
    return Record(
        **{
            "number": number, "kind": kind, "document": DOCUMENT, "trace": f"runs/{number}",
            "began_s": 3600.0 * number, "ended_s": 3600.0 * number + 1800, "exit_code": 0,
            "decision": decision,
            "measured": Measured(None, 10, 100.0, 95.0, 105.0, candidates=candidates,
                                 answer="Nothing to gain."),
            **more,
        }
    )  # fmt: skip


def log(*records: Record, **more) -> Log:
    return Log(**{"name": "job", "config": "job.yaml", "folder": "t", "cwd": ".",
                  "objective": "per-device", "document": DOCUMENT, "records": records,
                  **more})  # fmt: skip


SMOKE = record(0, "smoke", "passed")


def baseline(*candidates: Candidate) -> Record:
    return record(1, "baseline", "kept", *candidates)


def experiment(number: int, candidate: Candidate, decision: str, **more) -> Record:
    document = changed(DOCUMENT, candidate.overrides)
    return record(number, "experiment", decision, document=document, candidate=candidate,
                  **{"beside": 1, **more})  # fmt: skip
