"""What the advisor says of policies that differ, weights that collapse and empty trajectories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case, fired, kl, quality, sample

from rlinsight.analyzers.advise.rules import corruption, staleness
from rlinsight.analyzers.quality.guard import EffectiveSampleSize


def lagging(lag: float | None):
    base = sample("fully_async").staleness
    return replace(base, worst_token=replace(base.worst_token, mean_versions=lag))


@pytest.mark.parametrize(
    ("level", "lag", "fires"),
    [
        ("raised", 0.09, True), ("raised", 0.11, False), ("raised", None, False),
        ("healthy", 0.0, False), ("broken", 2.0, True),
    ],
)  # fmt: skip
def test_policies_that_differ_at_equal_weights_are_no_staleness(level, lag, fires):
    found = corruption.policy_mismatch(
        case(None, quality=quality(kl=kl(20, level)), staleness=lagging(lag))
    )
    assert fired(found) == fires
    if fires:
        assert "mixture-of-experts" in found.says
        assert found.overrides == ()


def test_engines_with_routing_replay_are_told_to_use_it():
    actor = {"strategy": "megatron", "megatron": {"router_replay": {"mode": "disabled"}}}
    found = corruption.policy_mismatch(
        case(None, quality=quality(kl=kl(20, "raised")), staleness=lagging(0.0),
             config={"actor_rollout_ref": {"actor": actor}})
    )  # fmt: skip
    assert found.overrides == (
        "actor_rollout_ref.actor.megatron.router_replay.mode=R3",
        "actor_rollout_ref.rollout.enable_rollout_routing_replay=True",
    )


@pytest.mark.parametrize(
    ("invalid", "flat", "signs"),
    [(0.05, 0.0, 1), (0.04, 0.89, 0), (0.0, 0.90, 1), (0.2, 1.0, 2), (None, None, 0)],
)
def test_trajectories_without_results_or_differences_are_told(invalid, flat, signs):
    found = corruption.broken_scaffold(
        case(None, quality=quality(invalid_ratio=invalid, zero_variance_share=flat))
    )
    assert (len(found.evidence) if fired(found) else 0) == signs


@pytest.mark.parametrize(
    ("collapsed", "level", "fires"),
    [(True, "sequence", True), (False, "sequence", False), (True, "token", False)],
)
def test_weights_of_sequences_that_collapse_become_weights_of_tokens(collapsed, level, fires):
    size = EffectiveSampleSize(0.3, 0.1, 0.05, collapsed, -0.5)
    of = quality(effective_sample_size=size)
    config = {"algorithm": {"rollout_correction": {"rollout_is": level}}}
    found = staleness.sampling_collapse(case(None, quality=of, config=config))
    assert fires == (not isinstance(found, str))
