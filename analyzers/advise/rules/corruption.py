"""Tier 1: signs that what is trained on is not what was meant: routing, scaffold, rewards."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Evidence, Proposal, Rule
from rlinsight.analyzers.config import setting

#: A mean lag below this explains no mismatch of policies.
FRESH: Final = 0.10
#: Shares of trajectories from which on the scaffold, not the policy, is what fails.
INVALID: Final = 0.05
FLAT: Final = 0.90
_ENGINES: Final = ("megatron", "veomni")


def policy_mismatch(case: Case) -> Proposal | str:
    """Rollout and training policy differ though their weights are the same.

    Staleness cannot be the reason at a lag of nearly 0: it is the experts that engine and trainer
    choose (mixture of experts), precision, or another tokenizer, vocabulary or template.
    """
    kl = case.report.quality.kl
    if kl is None:
        return "rollout_corr/kl was not recorded"
    if kl.level == "healthy":
        return f"rollout_corr/kl is {kl.times_healthy:.1f} times the healthy value"
    lag = case.report.staleness.worst_token.mean_versions
    if kl.level != "broken" and (lag is None or lag >= FRESH):
        known = "unknown" if lag is None else f"{lag:.2f} versions"
        return f"rollout_corr/kl is raised, and the mean lag ({known}) may be why"
    overrides = _replay(case)
    how = (
        "let the training replay the experts that the rollout chose"
        if overrides
        else "compare precision, tokenizer, vocabulary and template of engine and trainer; with "
        "mixture-of-experts models the experts they choose"
    )
    says = (
        f"rollout_corr/kl is {kl.times_healthy:.0f} times the healthy value at a mean lag of "
        f"{0.0 if lag is None else lag:.2f} versions: engine and trainer are not the same policy. "
        f"Before anything is tuned, {how}."
    )
    evidence = [case.shown("rollout_corr/kl, times the healthy 3e-4", kl.times_healthy, "x")]
    if lag is not None:
        evidence.append(case.shown("mean lag", lag, "versions"))
    return Proposal(says, tuple(evidence), {}, overrides)


def _replay(case: Case) -> tuple[str, ...]:
    """Return the overrides of routing replay, none where it is on or the engine has none."""
    for engine in _ENGINES:
        key = f"actor_rollout_ref.actor.{engine}.router_replay.mode"
        mode = setting(case.config, key)
        if mode is not None and engine == setting(case.config, "actor_rollout_ref.actor.strategy"):
            on = "actor_rollout_ref.rollout.enable_rollout_routing_replay=True"
            return (f"{key}=R3", on) if mode != "R3" else ()
    return ()


def broken_scaffold(case: Case) -> Proposal | str:
    """Trajectories that end without a result, or groups that never differ in reward."""
    quality = case.report.quality
    signs: list[tuple[str, Evidence]] = []
    invalid = quality.invalid_ratio
    if invalid is not None and invalid >= INVALID:
        shown = case.shown("aborted, of trajectories whose fate is known", invalid)
        signs.append((f"{invalid:.0%} of the trajectories end without a result", shown))
    flat = quality.zero_variance_share
    if flat is not None and flat >= FLAT:
        shown = case.shown("groups of equal rewards", flat)
        signs.append((f"{flat:.0%} of the groups have equal rewards and train nothing", shown))
    if not signs:
        return "trajectories end with results, and rewards differ within groups"
    says = (
        f"{' and '.join(text for text, _ in signs)}: read some of them, and check agent loop, "
        "parser and reward function before anything is tuned."
    )
    return Proposal(says[0].upper() + says[1:], tuple(evidence for _, evidence in signs))


RULES: Final = (
    Rule(
        name="policy_mismatch", tier=1, variables="engine", check=policy_mismatch,
        mend_first=True,
        asks="Are rollout and training the same policy when their weights are?",
        fires=f"rollout_corr/kl is raised at a mean lag below {FRESH:g} versions, or is a thousand "
        "times the healthy value",
        risk="None: it is a defect. Routing replay costs memory and some time per token.",
        verify="rollout_corr/kl falls to about 3e-4.",
        falsifier="rollout_corr/kl follows the lag: then it is staleness.",
    ),
    Rule(
        name="broken_scaffold", tier=1, variables="data", check=broken_scaffold,
        mend_first=True,
        asks="Do trajectories end with results that can be told apart?",
        fires=f"at least {INVALID:.0%} of the trajectories are aborted without being continued, or "
        f"{FLAT:.0%} of the groups have equal rewards",
        risk="None: it is a defect, not a setting.",
        verify="Aborted trajectories and groups of equal rewards become rare.",
        falsifier="Prompts are far too easy or too hard: then it is the data.",
    ),
)  # fmt: skip
