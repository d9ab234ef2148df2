"""Length statistics, where variance comes from, limits, growth and bias."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_frames import frame
from timelines import S, Timeline

from rlinsight.analyzers.engines.stragglers import batch_speed
from rlinsight.analyzers.lengths.bias import length_bias
from rlinsight.analyzers.lengths.cap import length_cap, piled_up_at
from rlinsight.analyzers.lengths.growth import length_drift, step_growth
from rlinsight.analyzers.lengths.histogram import length_histogram
from rlinsight.analyzers.lengths.rank_tokens import reported_dp_imbalance
from rlinsight.analyzers.lengths.statistics import (
    length_table,
    lengths,
    variance_split,
)

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}


def responses(*tokens, **columns):
    rows = [
        {"sample_uid": f"s{i}", "fate": "trained", "response_tokens": n, **columns}
        for i, n in enumerate(tokens)
    ]
    return frame("samples", rows)


NO_REQUESTS = frame("requests", [])


def test_statistics_of_the_whole_and_of_each_step():
    samples = pl.concat(
        [responses(10, 30, trained_step=1), responses(40, 40, None, trained_step=2)]
    )
    found = lengths(samples, NO_REQUESTS)
    assert (found.population, found.samples, found.known_share) == ("trained", 4, 0.8)
    assert (found.mean, found.std, found.max) == (30.0, pytest.approx(150**0.5), 40)
    assert found.cv == pytest.approx(150**0.5 / 30)
    assert (found.p50, found.p95) == (35.0, 40.0)
    assert [(row.key, row.samples, row.mean, row.std) for row in found.steps] == [
        (1, 2, 20.0, 10.0),
        (2, 2, 40.0, 0.0),
    ]


def test_without_any_length_everything_is_unknown():
    found = lengths(responses(None), NO_REQUESTS)
    assert (found.samples, found.known_share) == (0, 0.0)
    assert (found.mean, found.max, found.cap_share, found.within_group_var) == (None,) * 4
    assert (found.tail_cost_device_seconds, found.dp_imbalance, found.drift) == (None,) * 3


def test_the_replica_of_a_sample_is_the_one_that_completed_it(tmp_path):
    timeline = Timeline(tmp_path)
    timeline.gen(0, 4, lane="replica0", sample_uid="a", attempt=1, finish="abort")
    timeline.gen(5, 9, lane="replica1", sample_uid="a", attempt=2)
    timeline.gen(0, 9, lane="replica0", sample_uid="b")
    timeline.trained("a", 10, (1, 100), 1)
    timeline.trained("b", 10, (1, 60), 1)
    trace = timeline.open()
    found = lengths(trace.samples.collect(), trace.requests.collect())
    assert [(row.key, row.mean) for row in found.replicas] == [
        ("replica0", 60.0),
        ("replica1", 100.0),
    ]


def test_lengths_are_of_the_samples_trained_in_the_window():
    samples = pl.concat([responses(10, consumed_ns=5 * S), responses(99, consumed_ns=50 * S)])
    assert lengths(samples, NO_REQUESTS, window=(0, 10 * S)).mean == 10.0


def test_requests_stand_in_where_no_sample_was_recorded():
    row = {"lane": "replica0", "submit_ns": 0, "end_ns": 5 * S, "finish": "stop"}
    requests = frame(
        "requests",
        [
            {**row, "request_id": "a", "response_tokens": 10},
            {**row, "request_id": "b", "response_tokens": 20},
            {**row, "request_id": "c", "response_tokens": 7, "finish": "abort"},
            {**row, "request_id": "v", "response_tokens": 999, "validate": True},
        ],
    )
    found = lengths(frame("samples", []), requests, window=(0, 10 * S))
    assert (found.population, found.samples, found.mean) == ("requests", 2, 15.0)
    assert [(row.key, row.samples) for row in found.replicas] == [("replica0", 2)]


# -- variance ------------------------------------------------------------------------------


def test_variance_within_and_between_groups():
    samples = pl.concat(
        [responses(10, 30, group_uid="a"), responses(40, 40, group_uid="b"), responses(77)]
    )
    found = variance_split(samples)
    assert (found.within_group_var, found.between_group_var) == (50.0, 100.0)
    assert (found.total_var, found.groups, found.grouped_share) == (150.0, 2, 0.8)


def test_without_groups_the_split_is_unknown():
    found = variance_split(responses(10, 30))
    assert (found.within_group_var, found.between_group_var, found.grouped_share) == (
        None,
        None,
        0.0,
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 200_000)), min_size=1, max_size=60))
def test_total_variance_is_within_plus_between(rows):
    samples = pl.concat([responses(tokens, group_uid=f"g{group}") for group, tokens in rows])
    found = variance_split(samples)
    values = np.array([tokens for _, tokens in rows], dtype=float)
    assert found.total_var == pytest.approx(values.var(), rel=1e-9, abs=1e-6)
    assert found.within_group_var + found.between_group_var == pytest.approx(
        found.total_var, rel=1e-9, abs=1e-6
    )


def test_groups_have_a_table_of_their_own():
    samples = pl.concat([responses(10, 30, group_uid="a"), responses(0, 0, group_uid="b")])
    table = length_table(samples.with_columns(cut=pl.lit(value=False)), "group_uid")
    assert table["group_uid"].to_list() == ["a", "b"]
    assert table["cv"].to_list() == [0.5, None]


# -- limits --------------------------------------------------------------------------------


def test_a_pile_up_at_the_largest_length_is_a_limit():
    lengths_of = pl.Series([*range(1, 100), *[100] * 20])
    assert piled_up_at(lengths_of) == 100
    found = length_cap(responses(*lengths_of.to_list(), prompt_tokens=7))
    assert (found.response_cap_tokens, found.cap_share) == (100, pytest.approx(20 / 119))


def test_a_distribution_that_thins_out_has_no_limit():
    for seed in range(20):
        drawn = np.random.default_rng(seed).lognormal(6, 0.7, 5000).astype(int)
        assert piled_up_at(pl.Series(drawn.tolist())) is None


@pytest.mark.parametrize("values", [[], [5], [5, 5], [3, 4, 5, 5], [None, None]])
def test_a_few_samples_show_no_limit(values):
    assert piled_up_at(pl.Series(values, dtype=pl.Int64)) is None


def test_a_limit_on_prompt_and_response_together_is_found_though_no_response_is_at_its_own():
    # A context of 1000 tokens binds before the configured 2000 of a response.
    rng = np.random.default_rng(3)
    prompts = rng.integers(100, 400, 500)
    wanted = rng.lognormal(6.3, 0.5, 500).astype(int)
    rows = [
        {"sample_uid": f"s{i}", "prompt_tokens": int(p), "response_tokens": int(min(w, 1000 - p))}
        for i, (p, w) in enumerate(zip(prompts, wanted, strict=True))
    ]
    found = length_cap(frame("samples", rows), max_response_tokens=2000)
    assert (found.configured_share, found.total_cap_tokens) == (0.0, 1000)
    assert found.cap_share == np.mean(wanted >= 1000 - prompts)


def test_the_configured_limit_counts_even_without_a_pile_up():
    found = length_cap(responses(5, 8, 16), max_response_tokens=16)
    assert (found.response_cap_tokens, found.cap_share) == (None, pytest.approx(1 / 3))
    config = {"data": {"max_response_length": 16}}
    assert lengths(responses(5, 8, 16), NO_REQUESTS, config=config).cap_share == pytest.approx(
        1 / 3
    )


def test_the_engines_own_word_on_what_it_cut():
    row = {"lane": "replica0", "submit_ns": 0}
    ends = ["stop", "length", "stop", "abort", None]
    requests = [{**row, "request_id": f"r{i}", "finish": end} for i, end in enumerate(ends)]
    found = length_cap(responses(1), frame("requests", requests))
    assert found.finish_share == pytest.approx(1 / 3)
    assert length_cap(responses(1), NO_REQUESTS).finish_share is None


# -- drift and growth ----------------------------------------------------------------------


def test_a_straight_rise_is_significant():
    found = length_drift([1, 2, 3, 4], [100, 110, 120, 130])
    assert found.slope_tokens_per_step == pytest.approx(10)
    assert found.change_share == pytest.approx(0.3)
    assert found.significant


def test_the_interval_of_the_slope_is_that_of_least_squares():
    # Residuals alternate, so no autocorrelation is taken off: t(2) = 4.3027 at 97.5 %.
    found = length_drift([1, 2, 3, 4], [1, 0, 1, 0])
    assert found.slope_tokens_per_step == pytest.approx(-0.2)
    error = (0.8 / 2 / 5) ** 0.5
    assert found.high == pytest.approx(-0.2 + 4.3027 * error, abs=1e-4)
    assert found.significant is False


def test_noise_is_not_drift():
    significant = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(500, 50, 40)
        significant += length_drift(range(40), noise).significant
    assert significant <= 20  # 5 % of 200 is 10


def test_a_walk_that_resembles_itself_counts_as_few_steps():
    walk = np.random.default_rng(1).normal(0, 1, 200).cumsum() + 500
    found = length_drift(range(200), walk)
    assert found.effective_steps < 40


def test_one_step_has_no_drift():
    assert length_drift([1], [100]) is None
    assert length_drift([1, 2], [100, 200]).significant is None


def test_case_late_slow_steps_balanced():
    """Model FLOPs utilization stayed healthy, so time followed tokens; early steps are
    reconstructed on that account. The ranks' minimum and maximum are those of the case."""
    case = CASES["late-slow-steps-balanced"]
    given_in, expect = case["input"], case["expect"]
    ranks = [given_in["global_seqlen_min"], given_in["global_seqlen_max"]]
    imbalance = max(ranks) / (sum(ranks) / 2) - 1
    assert round(imbalance, 3) == expect["dp_imbalance"]
    late = sum(ranks)
    early = late * given_in["step_s_early"] / given_in["step_s_late"]
    rows = [(given_in["step_s_early"], early)] * 5 + [(given_in["step_s_late"], late)] * 5
    found = step_growth(
        pl.DataFrame(
            {
                "seconds": [seconds for seconds, _ in rows],
                "tokens": [tokens for _, tokens in rows],
                "dp_imbalance": [imbalance] * 10,
            }
        )
    )
    assert found.verdict == expect["verdict"]
    assert found.seconds_ratio == pytest.approx(118.5 / 25)
    drift = length_drift(range(10), [tokens for _, tokens in rows])
    assert drift.significant
    assert drift.slope_tokens_per_step > 0


def growth(seconds, tokens, imbalance, waited=0.0):
    columns = {
        "seconds": seconds,
        "work_seconds": [s - w for s, w in zip(seconds, [0.0, 0.0, waited], strict=True)],
        "tokens": tokens,
        "dp_imbalance": imbalance,
    }
    return step_growth(
        pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64), strict=False)
    )


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        ((40, 3600, 0.0), "length_growth"),
        ((40, 1000, 2.8), "dp_imbalance"),
        ((40, 1000, 0.0), "slower_per_token"),
        ((10.5, 1000, 0.0), "steady"),
        ((40, None, 0.0), "unknown"),
        ((40, 3600, None), "length_growth"),
    ],
)
def test_what_makes_late_steps_longer(late, verdict):
    seconds, tokens, imbalance = zip((10, 1000, 0.0), (10, 1000, 0.0), late, strict=True)
    assert growth(seconds, tokens, imbalance).verdict == verdict


def test_steps_that_only_wait_longer_do_not_train_slower():
    found = growth([10, 10, 28], [1000, 1000, 1000], [0.0, 0.0, 0.0], waited=18)
    assert (found.verdict, found.pace_ratio, found.waiting_ratio) == ("waiting", 1.0, 2.8)


def test_the_factors_multiply_to_the_whole():
    found = growth([10, 20, 60], [1000, 1500, 2000], [0.1, 0.1, 0.21], waited=5)
    product = found.tokens_ratio * found.imbalance_ratio * found.pace_ratio * found.waiting_ratio
    assert product == pytest.approx(found.seconds_ratio)
    assert (found.tokens_ratio, found.imbalance_ratio) == (2.0, pytest.approx(1.1))


# -- balance of ranks and workers ----------------------------------------------------------


def test_case_rollout_worker_imbalance_is_a_tail_of_long_responses():
    case = CASES["rollout-worker-imbalance"]
    rows = [{"lane": f"w{i}", **worker} for i, worker in enumerate(case["input"]["workers"])]
    found = batch_speed(pl.DataFrame(rows))
    assert found.verdict == case["expect"]["verdict"]
    assert found.idle_ratio == pytest.approx(case["expect"]["batch_idle"], abs=0.001)


def test_the_ranks_imbalance_that_the_framework_reports():
    metric = {"ts_ns": 0}
    values = [
        (1, "global_seqlen/mean", 100.0),
        (1, "global_seqlen/max", 150.0),
        (1, "global_seqlen/balanced_max", 110.0),
        (2, "global_seqlen/mean", 100.0),
        (2, "global_seqlen/max", 130.0),
        (9, "global_seqlen/mean", 100.0),
        (9, "global_seqlen/max", 999.0),
    ]
    metrics = frame(
        "metrics", [{**metric, "step": s, "key": key, "value": v} for s, key, v in values]
    )
    assert reported_dp_imbalance(metrics, pl.Series([1, 2])) == pytest.approx(0.2)
    assert reported_dp_imbalance(metrics, pl.Series([5])) is None
    assert reported_dp_imbalance(None, pl.Series([1])) is None


# -- bias ----------------------------------------------------------------------------------


def test_long_trajectories_that_get_lost_bias_what_is_trained():
    samples = pl.concat(
        [
            responses(100, 200),
            responses(300, 400, fate="dropped_stale"),
            responses(None, fate="aborted"),
            responses(9999, fate="unconsumed"),
        ]
    )
    found = length_bias(samples)
    assert (found.trained_mean, found.sampled_mean, found.lost_mean) == (150.0, 250.0, 350.0)
    assert (found.bias_tokens, found.bias_share) == (-100.0, -0.4)
    assert (found.lost_samples, found.unknown_samples) == (2, 1)
    # Welch: t = 200 / sqrt(5000) with 2 degrees of freedom.
    assert found.p_value == pytest.approx(0.1056, abs=1e-4)


def test_nothing_lost_means_no_bias():
    found = length_bias(responses(100, 200))
    assert (found.bias_tokens, found.lost_mean, found.p_value) == (0.0, None, None)
    assert length_bias(responses(100, fate="filtered")) is None


# -- histogram -----------------------------------------------------------------------------


def test_the_worked_example_of_the_histogram():
    found = length_histogram(pl.Series([10, 11, 14, 19]), bins=3)
    assert [(b.from_tokens, b.to_tokens, b.samples) for b in found] == [
        (10, 14, 2),
        (14, 18, 1),
        (18, 22, 1),
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=80))
def test_every_length_is_in_exactly_one_of_equal_bins(values):
    bins = lengths(responses(*values), NO_REQUESTS).histogram
    assert 1 <= len(bins) <= 40
    assert [b.to_tokens for b in bins[:-1]] == [b.from_tokens for b in bins[1:]]
    assert len({b.to_tokens - b.from_tokens for b in bins}) == 1
    for b in bins:
        assert b.samples == sum(b.from_tokens <= value < b.to_tokens for value in values)
    assert sum(b.samples for b in bins) == len(values)


def test_without_lengths_the_histogram_is_empty():
    assert lengths(responses(None), NO_REQUESTS).histogram == ()
