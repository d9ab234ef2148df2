"""Waits that end at a poll are told from waits that end when the work is there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rlinsight.analyzers.framework.polls import poll_period

LOGS = Path(__file__).parent / "data/verl_metrics"


def logged(name: str, key: str) -> list[float]:
    rows = [json.loads(line)["data"] for line in (LOGS / name).read_text().splitlines()]
    return [row[key] for row in rows if key in row]


def test_the_worked_example_of_a_recorded_sync_run():
    found = poll_period(logged("sync.metrics.jsonl", "timing_s/gen"))
    assert (found.period_s, found.waits) == (2.0, 4)
    assert found.offset_s == pytest.approx(0.013, abs=0.002)


def test_recorded_switch_waits_are_polls_though_three_of_six_are_zero():
    found = poll_period(logged("separate_async_switch.metrics.jsonl", "timing_s/switch_wait"))
    assert (found.period_s, found.waits) == (2.0, 3)


def test_a_pause_that_ends_at_the_resume_check_is_named_by_it():
    found = poll_period([10.02, 20.01, 10.03, 30.02])
    assert (found.period_s, found.what) == (10.0, "resume check of the rollouter")


@pytest.mark.parametrize("seed", range(5))
def test_waits_that_end_when_the_work_is_there_are_no_polls(seed):
    noise = random.Random(seed)
    assert poll_period([noise.uniform(1, 30) for _ in range(20)]) is None
    assert poll_period([0.01, 0.02, 0.5]) is None
    assert poll_period([2.0, 4.0]) is None
    assert poll_period([4.01, 4.02, 4.0, 4.01, 4.01]) is None, "equal work, perhaps"


def test_waits_that_end_just_before_a_poll_are_not_caused_by_it():
    assert poll_period([1.5, 3.5, 5.5, 7.5]) is None
