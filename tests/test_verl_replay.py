"""The replay buffer of the asynchronous trainers: depths, waits, and the fate of what it evicts."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
from live_rows import rows
from verl_hooked import counter, fates, put_on

import rlinsight
from rlinsight.collectors.verl import replay
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.trainer.ppo.v1.replay_buffer as replay_module


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((replay,), replay_module)


@pytest.fixture
def buffer(monkeypatch):
    """A real asynchronous buffer holding four groups, one of each kind, two trajectories each."""
    monkeypatch.setattr(replay_module.tq, "kv_clear", lambda **_: None)
    made = replay_module.ReplayBufferAsync(
        trainer_mode="separate_async",
        trainer_config={},
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
    )
    made.finished_keys["train"] |= {"stale", "flat", "good"}
    made.failure_keys["train"].add("failed")
    made.running_keys["val"].add("check")
    made.prompt_global_steps["train"].update(stale=1, flat=9, good=9, failed=9)
    for name in ("stale", "flat", "good", "failed"):
        for session in (0, 1):
            made.partitions["train"][f"{name}_{session}_0"] = {}
    return made


def test_evicted_groups_write_the_fate_of_each_trajectory(buffer, tmp_path):
    reasons = ({"stale", "failed"}, {"flat"}, {"failed"}, Counter())
    with rlinsight.recording(tmp_path / "t"):
        buffer._evict_terminal_groups(9, "train", reasons)

    assert fates(tmp_path / "t") == {
        "stale/0": "dropped_stale",
        "stale/1": "dropped_stale",
        "flat/0": "filtered",
        "flat/1": "filtered",
        "failed/0": "dropped_stale",  # stale and failed: it is counted once
        "failed/1": "dropped_stale",
    }
    (marker,) = rows(tmp_path / "t", "markers")
    assert (marker["kind"], marker["lane"]) == ("evict", "replay_buffer")
    assert dict(marker["attrs"]) == {"groups": "3", "stale": "2", "filtered": "1"}


def test_the_surplus_of_a_synchronous_step_is_unconsumed(buffer, tmp_path):
    with rlinsight.recording(tmp_path / "t"):
        buffer._clear_groups("train", {"good"})
        buffer._clear_groups("val", {"check"})
    assert fates(tmp_path / "t") == {"good/0": "unconsumed", "good/1": "unconsumed"}


def test_depths_are_recorded_per_partition_when_they_change(buffer, monkeypatch, tmp_path):
    def prompt(status: str) -> dict:
        return {"is_prompt": True, "global_steps": 1, "status": status}

    states = iter(
        [
            {"train": {"a": prompt("pending"), "b": prompt("running")}},
            {"train": {"a": prompt("running"), "b": prompt("finished")}},
            {"val": {"c": prompt("running")}},
        ]
    )
    monkeypatch.setattr(replay_module.tq, "kv_list", lambda: next(states))
    with rlinsight.recording(tmp_path / "t"):
        for _ in range(3):
            buffer._sync_metadata_from_transfer_queue()

    folder = tmp_path / "t"
    assert counter(folder, "replay_buffer", "replay_pending") == [1, 0]
    assert counter(folder, "replay_buffer", "replay_running") == [1, 0]
    assert counter(folder, "replay_buffer", "replay_finished") == [0, 1, 0]
    assert counter(folder, "replay_buffer/val", "replay_running") == [0, 1]


def test_a_wait_for_samples_shows_the_sleeps_of_the_buffer(buffer, monkeypatch, tmp_path):
    buffer.poll_interval = 0.01
    with rlinsight.recording(tmp_path / "t"):
        buffer._wait_for_next_poll("train", 0.0)
    (span,) = rows(tmp_path / "t", "spans")
    assert (span["activity"], span["lane"]) == ("other:poll", "replay_buffer")
    assert span["end_ns"] - span["start_ns"] >= 10_000_000
