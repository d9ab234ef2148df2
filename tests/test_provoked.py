"""Runs with one deliberate fault each (`sample_traces/provoked.yaml`): is it what is found?"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

import rlinsight
from rlinsight.trace.validate import validate

SAMPLES = Path(__file__).parent.parent / "sample_traces"
PROVOKED = SAMPLES / "provoked"
KINDS = sorted(folder.name for folder in PROVOKED.iterdir())


@cache
def report(kind: str):
    return rlinsight.open(PROVOKED / kind).analyze()


def found(kind: str) -> tuple[str, str, str]:
    """Return what the verdict says: bound, and owner and cause of the largest bubble."""
    verdict = report(kind).verdict
    return verdict.bound, verdict.owner, verdict.cause


def test_every_provoked_run_was_recorded():
    assert set(KINDS) == set(yaml.safe_load((SAMPLES / "provoked.yaml").read_text()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_recordings_are_small_sound_and_account_for_their_time(kind):
    assert sum(path.stat().st_size for path in (PROVOKED / kind).iterdir()) < 2_000_000
    trace = rlinsight.open(PROVOKED / kind)
    # Time in hooks is stretched by a busy machine; benchmarks/record.py says what they cost.
    assert {finding.kind for finding in validate(trace).findings} <= {"hook_overhead"}
    for pool in report(kind).pools.values():
        assert pool.unattributed_ratio < 0.03
        assert sum(pool.ledger.values()) == pytest.approx(pool.device_seconds, abs=1e-6)


def test_rollout_bound():
    assert found("rollout_bound") == ("rollout", "trainer", "wait_samples")
    assert report("rollout_bound").pools["rollouter"].idle_ratio < 0.15


def test_trainer_bound():
    assert found("trainer_bound") == ("trainer", "rollouter", "staleness_quota")
    assert report("trainer_bound").pools["trainer"].idle_ratio < 0.1


def test_quota_pause():
    """The rollouter's pauses explain nearly all of its idle time."""
    assert found("quota_pause")[1:] == ("rollouter", "staleness_quota")
    idle = report("quota_pause").pools["rollouter"].idle_ratio
    assert report("quota_pause").verdict.share > 0.8 * idle
    for bubble in report("quota_pause").bubbles.largest:
        if bubble.cause == "staleness_quota":
            seen = bubble.evidence
            assert seen["staleness_samples"] >= seen["max_required_samples"]


def test_long_tail():
    """More than a third of what the trainer waits is for the last quarter of its batch."""
    assert found("long_tail")[1] == "trainer"
    shares = {t.cause: t.share for t in report("long_tail").bubbles.totals if t.owner == "trainer"}
    assert shares["long_tail"] > (shares["long_tail"] + shares["wait_samples"]) / 3
    for kind in ("rollout_bound", "trainer_bound", "quota_pause"):
        others = {t.cause: t.share for t in report(kind).bubbles.totals if t.owner == "trainer"}
        assert others.get("long_tail", 0.0) < 0.02, kind


def test_validation_gap():
    """The rollouter validates after every version; the trainer waits most of the time."""
    assert found("validation_gap")[1:] == ("trainer", "validation")
    assert report("validation_gap").verdict.share > 0.4
    assert report("rollout_bound").verdict.cause != "validation"  # the trainer's device validates


def test_slow_replica():
    """The trainer waits for responses, and the verdict names the replica they come from."""
    assert found("slow_replica")[1] == "trainer"
    slow = report("slow_replica").verdict.slow_replica
    assert slow.lane == "replica2"
    assert slow.slowdown > 3  # it has a fifth of its peer's time
    spread = report("slow_replica").balance.requests
    assert spread.verdict == "even"  # it has more of the time, not of the requests
    for kind in set(KINDS) - {"slow_replica"}:
        assert report(kind).verdict.slow_replica is None, kind
