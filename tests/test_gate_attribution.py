"""What a slower run is blamed on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gating import gate_runs

from rlinsight.analyzers.gate.attribution import attribution
from rlinsight.analyzers.gate.observation import Observation

QUIET = gate_runs.Kind(noise=0.01)


def small(update_s: float, quota_s: float, tokens: float = 100.0) -> Observation:
    return Observation(
        source="trace", run_id=None, recorded_ns=None, identity={},
        devices={"trainer": 1, "rollouter": 2},
        windows={
            "seconds": (8.0 + update_s,), "steps": (1.0,), "tokens": (tokens,),
            "trainer/bubble.wait_samples": (8.0,), "trainer/train.update_actor": (update_s,),
            "rollouter/generate": (16.0,), "rollouter/bubble.staleness_quota": (quota_s * 2,),
        },
    )  # fmt: skip


def test_the_worked_example_of_the_attribution():
    found = attribution(small(8, 8), [small(2, 2)])
    assert (found.before_s, found.after_s, found.pace_ratio, found.tokens_ratio) == (
        10, 16, 1.6, 1,
    )  # fmt: skip
    assert found.leading.state == "train.update_actor"
    assert [(row.state, row.share) for row in found.contributions] == [
        ("train.update_actor", 1.0),
        ("bubble.staleness_quota", 1.0),
    ]


def test_the_states_of_a_pool_sum_to_the_change_of_the_step():
    history = [gate_runs.observation(QUIET, seed) for seed in (1, 2, 3)]
    slower = replace(QUIET, slow={"update_actor": 1.3, "wait_samples": 1.2})
    new = gate_runs.observation(slower, 9)
    found = attribution(new, history)
    steps = sum(new.windows["steps"])
    trainer = sum(sum(c) for name, c in new.windows.items() if name.startswith("trainer/"))
    assert trainer / steps == pytest.approx(found.after_s)


def test_work_leads_bubbles_that_follow_from_it():
    found = attribution(small(8, 9), [small(2, 2)])
    assert found.contributions[0].state == "bubble.staleness_quota"
    assert found.leading.state == "train.update_actor"


def test_more_tokens_per_step_are_told_from_a_slower_pace():
    found = attribution(small(8, 8, tokens=160), [small(2, 2)])
    assert (found.tokens_ratio, found.pace_ratio) == (pytest.approx(1.6), pytest.approx(1.0))


def test_without_steps_there_is_no_attribution():
    new = small(8, 8)
    windows = {name: column for name, column in new.windows.items() if name != "steps"}
    assert attribution(replace(new, windows=windows), [small(2, 2)]) is None
