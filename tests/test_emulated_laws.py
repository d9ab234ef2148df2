"""The cost model's laws, on numbers that can be checked by hand."""

from __future__ import annotations

import math
import statistics

import pytest
from pydantic import ValidationError

import rlinsight
from rlinsight.errors import ConfigError
from rlinsight.runs.emulated.cost import Emulated, Generation, Lengths, Training
from rlinsight.runs.emulated.laws import (
    MicroBatches,
    log_prob_seconds,
    replica_cost,
    response_length,
    update_seconds,
)
from rlinsight.runs.emulated.lengths import resolved
from rlinsight.trace import run_clock
from rlinsight.trace.run_clock import EmulatedClock, RealClock


def lengths_of(lengths: Lengths, prompts: int = 400, each: int = 4) -> list[list[int]]:
    return [
        [response_length(lengths, 7, f"p{p}", str(i), 100_000) for i in range(each)]
        for p in range(prompts)
    ]


def test_a_length_depends_on_seed_prompt_and_index_only():
    lengths = Lengths(median=500, sigma=1.0)
    assert response_length(lengths, 1, "p", "0", 9999) == response_length(
        lengths, 1, "p", "0", 9999
    )
    others = [(2, "p", "0"), (1, "q", "0"), (1, "p", "1")]
    found = {response_length(lengths, *other, 10**9) for other in others}
    assert response_length(lengths, 1, "p", "0", 10**9) not in found


def test_lengths_are_log_normal_and_stop_at_the_cap():
    drawn = [n for group in lengths_of(Lengths(median=500, sigma=0.5)) for n in group]
    logs = [math.log(n) for n in drawn]
    assert statistics.median(drawn) == pytest.approx(500, rel=0.08)
    assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.1)
    capped = [n for group in lengths_of(Lengths(median=500, sigma=0.5, cap=600)) for n in group]
    assert max(capped) == 600
    assert response_length(Lengths(median=500, sigma=0), 1, "p", "0", 300) == 300


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_responses_to_one_prompt_have_their_share_in_common(share):
    groups = lengths_of(Lengths(median=500, sigma=0.8, prompt_share=share))
    means = [statistics.fmean(math.log(n) for n in group) for group in groups]
    # variance of a mean of four: the common part, and a quarter of the rest
    expected = 0.64 * (share + (1 - share) / 4)
    assert statistics.variance(means) == pytest.approx(expected, rel=0.2)


def test_quantiles_are_drawn_from_evenly():
    drawn = [n for group in lengths_of(Lengths(quantiles=[0 + 1, 100, 1000])) for n in group]
    assert statistics.median(drawn) == pytest.approx(100, rel=0.25)
    assert 1 <= min(drawn) <= max(drawn) <= 1000


def test_lengths_of_a_trace_become_its_quantiles(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "t", mode="sync") as writer:
        for index in range(101):
            writer.sample(sample_uid=str(index), group_uid="g", response_tokens=10 + index)
    found = resolved(Lengths(trace=str(tmp_path / "t")))
    assert found.quantiles == list(range(10, 111))
    with rlinsight.TraceWriter(tmp_path / "empty", mode="sync") as writer:
        writer.counter("x", 1.0)
    with pytest.raises(ConfigError, match="found none"):
        resolved(Lengths(trace=str(tmp_path / "empty")))


def test_more_devices_make_a_replica_faster_and_larger():
    generation = Generation(step_s=0.02, kv_cache_tokens=1000, tensor_parallel=2,
                            tensor_parallel_exponent=1.0)  # fmt: skip
    twice = replica_cost(generation, devices=4, capacity=8)
    assert (twice.step(0), twice.kv_tokens) == (pytest.approx(0.01), 2000)
    same = replica_cost(generation, devices=2, capacity=8)
    assert (same.step(0), same.kv_tokens) == (pytest.approx(0.02), 1000)


def test_update_time_by_hand():
    training = Training(fixed_s=1, per_micro_batch_s=0.1, device_s_per_token=0.001,
                        log_prob_device_s_per_token=0.0005)  # fmt: skip
    assert update_seconds(training, 4000, 4, 2) == pytest.approx(1 + 0.2 + 1.0)
    assert update_seconds(training, 4000, 8, 2) == pytest.approx(1 + 0.2 + 0.5)
    assert log_prob_seconds(training, 4000, 4, 2) == pytest.approx(0.2 + 0.5)
    lossy = training.model_copy(update={"scaling_exponent": 0.5})
    assert update_seconds(lossy, 4000, 4, 0) == pytest.approx(1 + 2.0)


def test_a_larger_token_budget_makes_fewer_micro_batches():
    assert MicroBatches(token_budget=5000).count(64_000, 64, 4) == 4
    assert MicroBatches(token_budget=15000).count(64_000, 64, 4) == 2
    assert MicroBatches(sequences=8).count(64_000, 64, 4) == 2
    assert MicroBatches().count(64_000, 64, 4) == 1


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"time_scale": 0}, "greater than 0"),
        ({"lenghts": {}}, "Extra inputs"),
        ({"lengths": {"trace": "t", "quantiles": [1, 2]}}, "two sources"),
        ({"lengths": {"quantiles": [2, 1]}}, "must not fall"),
        ({"training": {"scaling_exponent": 1.5}}, "less than or equal to 1"),
    ],
)
def test_what_means_nothing_is_refused(section, complaint):
    with pytest.raises(ValidationError, match=complaint):
        Emulated.model_validate(section)


def test_the_clock_runs_faster_by_its_scale():
    clock = EmulatedClock(0.1, epoch_ns=1_000_000_000_000, monotonic_anchor_ns=0)
    assert clock.at(1_000_250_000_000) == 1_002_500_000_000
    assert run_clock.of(clock.to_text()) == clock
    assert isinstance(run_clock.of(None), RealClock)
    with pytest.raises(ConfigError, match="RLINSIGHT_CLOCK"):
        run_clock.of("soon")


def test_the_clock_goes_on_where_another_process_left_it():
    first = run_clock.emulated(0.5)
    second = run_clock.of(first.to_text())
    before, between, after = first.now_ns(), second.now_ns(), first.now_ns()
    assert before <= between <= after
