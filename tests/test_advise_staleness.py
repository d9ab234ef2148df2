"""When the advisor raises the staleness, when it lowers it, and what has to be healthy first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case, fired, kl, predicted, quality, sample
from simulated import job

from rlinsight.analyzers.advise import advise
from rlinsight.analyzers.advise.case import FREE
from rlinsight.analyzers.advise.rules import fresher, staleness, update_size
from rlinsight.analyzers.quality.guard import Kl
from rlinsight.analyzers.quality.trends import Trend
from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.staleness.coverage import AnalyticCoverage, analytic_coverage

# -- more ----------------------------------------------------------------------------------

QUOTA = {"lengths": (4,), "train_s": 3.0, "sync_step": 4, "mini_batch": 4}
HELD = {("trainer", "wait_samples"): 0.4}


def differing(level: str):
    return quality(kl=Kl(0.001, 0.002, 3.0, level))


def test_staleness_is_raised_to_where_the_wait_stops_falling():
    found = staleness.raise_staleness(
        case(job(**QUOTA), bubbles=HELD, quality=differing("healthy"))
    )
    value = found.changes["staleness_threshold"]
    assert 0 < value <= staleness.SAFE_DECOUPLED
    assert found.overrides == (f"async_training.staleness_threshold={value}",)
    # Beyond it, the wait is the same.
    more = case(job(**QUOTA)).effect({"staleness_threshold": value + 0.3})
    waits = [e.after.trainer_wait_share.value for e in (found.effect, more)]
    assert waits[1] > waits[0] - staleness.PLATEAU - 1e-9


def test_where_the_wait_still_falls_at_the_limit_it_is_not_called_a_plateau():
    config = {"algorithm": {"rollout_correction": {"bypass_mode": True}}}
    asked = case(job(**QUOTA, staleness_threshold=0.2), config=config, bubbles=HELD,
                 quality=differing("healthy"))  # fmt: skip
    waits = [asked.effect({"staleness_threshold": v}).after.trainer_wait_share.value
             for v in (0.4, 0.5)]  # fmt: skip
    assert waits[0] - waits[1] > staleness.PLATEAU
    found = staleness.raise_staleness(asked)
    assert found.changes == {"staleness_threshold": 0.5}
    assert "the most that is safe" in found.says


@pytest.mark.parametrize(
    ("waits", "level", "config", "now", "reason"),
    [
        (0.07, "healthy", {}, 0.0, "the trainer waits 7.0%"),
        (0.40, "raised", {}, 0.0, "rollout_corr/kl is raised"),
        (0.40, "healthy", {"algorithm": {"rollout_correction": {"bypass_mode": True}}}, 0.5,
         "0.5 is what is safe"),
        (0.40, "healthy", {}, 0.9, "plateau"),
    ],
)  # fmt: skip
def test_staleness_stays_where_it_would_not_help_or_not_be_safe(waits, level, config, now, reason):
    told = staleness.raise_staleness(
        case(job(**QUOTA, staleness_threshold=now), config=config, quality=differing(level),
             bubbles={("trainer", "wait_samples"): waits})
    )  # fmt: skip
    assert reason in told


@pytest.mark.parametrize(
    ("now", "bypass", "tried"),
    [
        (0.35, True, [0.45, 0.5]),
        (0.25, True, [0.35, 0.45, 0.5]),
        (0.2, True, [0.3, 0.4, 0.5]),
        (0.45, True, [0.5]),
        (0.498, True, [0.5]),
        (0.75, False, [0.85, 0.95, 1.0]),
        (0.5, True, []),
        (0.7, True, []),
    ],
)
def test_staleness_is_tried_up_to_its_limit_and_not_beyond(now, bypass, tried):
    config = {"algorithm": {"rollout_correction": {"bypass_mode": bypass}}}
    asked = case(job(**QUOTA, staleness_threshold=now), config=config, bubbles=HELD,
                 quality=differing("healthy"))  # fmt: skip
    staleness.raise_staleness(asked)
    assert list(asked._asked) == [repr([("staleness_threshold", value)]) for value in tried]


TWO_LENGTHS = {"lengths": (4, 8), "train_s": 8.0, "max_num_seqs": 8, "mini_batch": 4}


def rewards(mean: float, slope: float | None, significant: bool, volatility: float | None):
    trend = Trend(20, mean, mean, mean, slope, significant)
    return quality(kl=None, reward=trend, reward_volatility=volatility)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (rewards(0.4, 0.001, True, 0.19), None),
        (rewards(0.4, -0.001, True, 0.0), "the reward falls"),
        (rewards(0.4, -0.001, False, 0.0), None),
        (rewards(0.4, 0.001, True, 0.21), "volatility"),
    ],
)
def test_no_more_staleness_for_a_reward_that_is_not_stable(of, reason):
    found = staleness.raise_staleness(
        case(job(**TWO_LENGTHS), quality=of, bubbles={("trainer", "wait_samples"): 0.3})
    )
    assert fired(found) == (reason is None)
    if reason is not None:
        assert reason in found


# -- less ----------------------------------------------------------------------------------


def covering(threshold: float, updates: int):
    ahead = threshold * updates
    analytic = AnalyticCoverage(threshold, updates, ahead, int(ahead), int(ahead) / updates)
    return replace(sample("fully_async").coverage, analytic=analytic)


def slow_trainer(threshold: float, **settings):
    """The trainer never waits, so that staleness buys nothing."""
    return job(**{"lengths": (4,), "train_s": 30.0, "sync_step": 8, "mini_batch": 4,
                  "max_num_seqs": 8, "staleness_threshold": threshold, **settings})  # fmt: skip


@pytest.mark.parametrize(
    ("threshold", "lower"), [(0.3, 0.25), (0.25, None), (0.2562, None), (0.2563, 0.25)]
)
def test_staleness_that_covers_no_further_update_is_given_up(threshold, lower):
    # 0.3 x 8 = 2.4 covers two updates in full, as 0.25 does.
    told = case(slow_trainer(threshold), coverage=covering(threshold, 8))
    predicted(told, {"staleness_threshold": 0.25}, Estimate(0.05, 0.01, 0.09))
    found = staleness.staleness_coverage(told)
    assert (found.changes["staleness_threshold"] if fired(found) else None) == lower


@pytest.mark.parametrize("every", [1, 2, 3, 6, 7, 8, 12, 64, 300, 1001])
def test_what_is_lowered_to_covers_the_same_updates(every):
    """By the formula that counts them; 333 of 1000 would cover none of three."""
    for covered in range(every + 1):
        lower = staleness.least_covering(covered, every)
        analytic = analytic_coverage(lower, every)
        assert analytic.steps_covered == covered
        assert analytic.steps_ahead - covered < 0.01
        assert lower == pytest.approx(covered / every, abs=0.001)


def test_a_third_is_given_as_the_decimal_that_covers_what_a_third_does():
    told = case(slow_trainer(0.5, sync_step=3), coverage=covering(0.5, 3))
    found = staleness.staleness_coverage(
        predicted(told, {"staleness_threshold": 0.334}, Estimate(0.05, 0.01, 0.09))
    )
    assert found.overrides == ("async_training.staleness_threshold=0.334",)
    assert "covers 1 of 3 updates in full, as 0.334 does" in found.says


#: Both sides of 3 %, and of an interval that tells a gain from noise.
GAINS = [
    (Estimate(0.0301, 0.001, 0.06), True),
    (Estimate(0.0299, 0.001, 0.06), False),
    (Estimate(0.05, 0.0, 0.1), False),
    (Estimate(0.05, -0.01, 0.11), False),
    (Estimate(0.0, 0.0, 0.0), False),
    (Estimate(0.05), False),
]


@pytest.mark.parametrize(("gain", "fires"), GAINS)
def test_staleness_is_only_given_up_for_a_gain_above_its_noise(gain, fires):
    told = case(slow_trainer(0.3), coverage=covering(0.3, 8))
    found = staleness.staleness_coverage(predicted(told, {"staleness_threshold": 0.25}, gain))
    assert fired(found) == fires
    if not fires:
        assert "giving up the staleness beyond 0.25 is predicted to gain nothing (" in found


@pytest.mark.parametrize(("gain", "fires"), GAINS)
def test_syncs_are_only_doubled_for_a_gain_above_its_noise(gain, fires):
    work = job(lengths=(4,), train_s=9.0, sync_step=4, staleness_threshold=1.0)
    told = case(work, quality=quality(kl=kl(20, "raised")))
    found = update_size.fresher_samples(predicted(told, {"sync_step": 2}, gain))
    assert fired(found) == fires
    if not fires:
        assert "synchronizing twice as often is predicted to gain nothing (" in found


def test_what_is_simulated_to_change_nothing_is_not_proposed():
    told = case(slow_trainer(0.3), coverage=covering(0.3, 8))
    found = staleness.staleness_coverage(told)
    assert "is predicted to gain nothing (+0.0%, 95 % interval" in found


def test_staleness_that_is_worth_something_is_kept():
    work = job(lengths=(4, 8), train_s=8.0, max_num_seqs=8, mini_batch=4, staleness_threshold=0.7)
    told = staleness.staleness_coverage(case(work, coverage=covering(0.7, 1)))
    assert "is predicted to cost" in told


@pytest.mark.parametrize(
    ("level", "sync_s", "fires"), [("raised", 0.0, True), ("healthy", 0.0, False),
                                   ("raised", 3.0, False)],
)  # fmt: skip
def test_samples_get_fresher_where_that_gains(level, sync_s, fires):
    work = job(lengths=(4,), train_s=9.0, sync_step=4, staleness_threshold=1.0,
               costs={"sync_s": sync_s})  # fmt: skip
    told = case(work, quality=quality(kl=kl(20, level)))
    if fires:
        predicted(told, {"sync_step": 2}, Estimate(0.05, 0.01, 0.09))
    found = update_size.fresher_samples(told)
    assert fired(found) == fires
    if fires:
        assert found.changes == {"sync_step": 2}


# -- fresher samples at no cost ------------------------------------------------------------

#: Two replicas that finish in 4 s what is trained in 30 s: whatever is ahead lies and ages.
AHEAD = {"rollout_devices": 2, "lengths": (4,), "train_s": 30.0}


def old(mode: str, versions: float):
    lags = sample(mode).staleness
    return replace(lags, worst_token=replace(lags.worst_token, mean_versions=versions))


@pytest.mark.parametrize(
    ("mode", "settings", "changes", "override"),
    [
        ("separate_async", {"warm_up_batches": 7.0}, {"warm_up_batches": 1},
         "trainer.v1.separate_async.num_warmup_batches=1"),
        ("fully_async", {"staleness_threshold": 3.0}, {"staleness_threshold": 1.5},
         "async_training.staleness_threshold=1.5"),  # with half of that the trainer would wait
    ],
)  # fmt: skip
def test_what_is_ahead_of_a_trainer_that_never_waits_is_given_up(mode, settings, changes, override):
    asked = case(job(mode, **AHEAD, **settings), mode, staleness=old(mode, 3.0))
    found = fresher.run_ahead(asked)
    assert (found.changes, found.overrides) == (changes, (override,))
    lags = [one.mean_lag_versions.value for one in (found.effect.before, found.effect.after)]
    assert lags[1] < 0.75 * lags[0]
    assert "at the same throughput" in found.says


def test_no_more_is_given_up_than_the_trainer_can_do_without():
    """Training takes 18 s, the four responses of a batch on two slots 8 to 24 s."""
    work = job("separate_async", rollout_devices=2, lengths=(4, 12), train_s=18.0, max_num_seqs=1,
               mini_batch=4, train_batch=4, warm_up_batches=6.0)  # fmt: skip
    asked = case(work, "separate_async", staleness=old("separate_async", 3.0))
    found = fresher.run_ahead(asked)
    assert found.changes == {"warm_up_batches": 2}
    assert asked.gain(asked.effect({"warm_up_batches": 1})) < -FREE


def test_a_wait_for_rollouters_that_are_busy_needs_no_samples_ahead():
    work = job("separate_async", **AHEAD, warm_up_batches=7.0)
    held = {("trainer", "wait_samples"): 0.3, ("rollouter", "no_prompts"): 0.09}
    asked = case(work, "separate_async", staleness=old("separate_async", 3.0), bubbles=held)
    assert "at the same throughput" in fresher.run_ahead(asked).says


@pytest.mark.parametrize(
    ("mode", "lag", "waits", "reason"),
    [
        ("separate_async", 0.9, 0.0, "samples are 0.9 versions old"),
        ("separate_async", 3.0, 0.06, "samples ahead are what it lacks"),
        ("separate_async", None, 0.0, "the lag is not known"),
        ("sync", 3.0, 0.0, "generates nothing ahead"),
    ],
)
def test_samples_stay_as_old_as_they_have_to_be(mode, lag, waits, reason):
    work = job(mode, **(AHEAD if mode != "sync" else {}), warm_up_batches=7.0)
    held = {("trainer", "wait_samples"): waits, ("rollouter", "no_prompts"): 0.11}
    asked = case(work, mode, staleness=old(mode, lag), bubbles=held)
    assert reason in fresher.run_ahead(asked)


@pytest.mark.parametrize(("now", "tried"), [(2.5, [1, 2]), (1.5, [1]), (1.0, []), (3.0, [1, 2])])
def test_whole_numbers_of_batches_ahead_are_tried_below_that_of_the_run(now, tried):
    work = job("separate_async", **AHEAD, warm_up_batches=now)
    asked = case(work, "separate_async", staleness=old("separate_async", 3.0))
    fresher.run_ahead(asked)
    assert sorted(asked._asked) == [f"[('warm_up_batches', {one})]" for one in tried]


def test_what_is_predicted_to_be_as_fresh_as_can_be_gets_no_fresher():
    """The simulation has no lag to begin with, whatever was measured: nothing is predicted."""
    asked = case(job(**{**AHEAD, "rollout_devices": 1}, staleness_threshold=0.1),
                 staleness=old("fully_async", 3.0))  # fmt: skip
    effect = asked.effect({"staleness_threshold": 0.0})
    assert effect.before.mean_lag_versions.value == 0
    assert "nothing less is predicted" in fresher.run_ahead(asked)


def test_fresher_samples_are_a_finding_though_no_throughput_is_gained():
    """And the last one: throughput comes first."""
    work = job("separate_async", **AHEAD, warm_up_batches=7.0)
    found = advise(case(work, "separate_async", staleness=old("separate_async", 3.0)))
    assert found.findings[-1].rule == "run_ahead"
    assert abs(found.findings[-1].effect.tokens_per_s_per_device.value) < FREE
    assert found.findings[-1].aim == "freshness"
