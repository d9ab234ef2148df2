"""Tier 3: the token budget of a micro-batch, between the longest sequence and the memory."""

from __future__ import annotations

from functools import partial
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting
from rlinsight.analyzers.parallel import sequence_parallel_size

#: A budget that could grow by less is not worth an experiment.
GROWTH: Final = 1.25
_ROUND: Final = 512
#: Multiples of a budget that are tried on emulated devices, which have no memory.
MULTIPLES: Final = (2, 3, 4)
#: Gains that differ by less are the same.
SAME: Final = 0.02


def token_budget(case: Case) -> Proposal | str:
    """The largest budget that the measured headroom allows, with its margin of 10 %.

    Feasible are budgets from longest sequence / sequence parallelism to what memory holds; where
    these cross, none is. Only what is proposed is rounded down, to a multiple of 512 where one is
    feasible and larger than the budget of the run.
    """
    if case.knobs is None:
        return NOT_CALIBRATED
    budget = case.knobs.token_budget
    if budget is None:
        return "micro-batches have a fixed number of sequences: there is no token budget"
    factor = _factor(case)
    if factor is None:
        if case.emulated:
            return _without_memory(case, budget)
        return "the memory of the devices was not sampled"
    lowest, highest = _longest(case), int(budget * factor)
    interval = f"feasible from {lowest} to {highest}"
    evidence = (
        case.shown("the budget may grow by", factor, "x"),
        case.shown("longest sequence / sequence parallelism", lowest, "tokens"),
    )
    if highest < lowest:
        says = (
            f"No token budget is feasible: the longest sequence needs {lowest}, memory holds "
            f"{highest}. Raise the sequence parallelism or lower the maximum length."
        )
        return Proposal(says, evidence)
    if factor < GROWTH:
        return f"the budget of {budget} uses the memory well ({interval})"
    rounded = highest // _ROUND * _ROUND
    effect = case.best([{"token_budget": rounded if rounded > max(budget, lowest) else highest}])
    if effect is None:
        return f"a larger budget is predicted to gain nothing ({interval})"
    says = f"Memory allows {factor:.1f} times the token budget of {budget} ({interval})."
    return case.propose(says, evidence, effect)


def _without_memory(case: Case, budget: int) -> Proposal | str:
    """Emulated devices hold any budget: the smallest multiple that gains about all there is."""
    found = [(case.effect({"token_budget": k * budget}), k) for k in MULTIPLES]
    gains = [(case.gain(effect) or 0.0, k) for effect, k in found if effect is not None]
    enough = max(gains, default=(0.0, 1))[0] - SAME
    multiple = min((k for gain, k in gains if gain >= enough), default=1)
    effect = next((one for one, k in found if k == multiple), None)
    if effect is None or not case.worth_it(effect):
        return "a larger budget is predicted to gain nothing"
    says = (
        f"{multiple} times the token budget of {budget} makes fewer micro-batches. Emulated "
        "devices have no memory that it would have to fit: measure the headroom of real ones first."
    )
    shown = case.shown(
        "training, of the trainer's time", case.state("trainer", "train.update_actor")
    )
    return case.propose(says, (shown,), effect)


def _factor(case: Case) -> float | None:
    """Return by how much the budget may grow on the rank with least memory left."""
    devices = case.report.devices
    if devices is None or devices.ranks is None:
        return None
    known = [rank.budget_factor for rank in devices.ranks.ranks if rank.budget_factor is not None]
    return min(known, default=None)


def _longest(case: Case) -> int:
    """Return the tokens that the longest sequence takes on a device, rounded up."""
    prompt = setting(case.config, "data.max_prompt_length") or 0
    response = setting(case.config, "data.max_response_length") or 0
    parallel = sequence_parallel_size(partial(setting, case.config))
    return -(-(int(prompt) + int(response)) // parallel)


RULES: Final = (
    Rule(
        name="token_budget", tier=3, variables="batching", check=token_budget,
        asks="Is there memory for larger micro-batches, and is the longest sequence within them?",
        fires=f"measured headroom allows at least {GROWTH:g} times the budget and that is "
        "predicted to gain, or no budget is feasible; on emulated devices, which have no memory, "
        f"{MULTIPLES[0]} to {MULTIPLES[-1]} times the budget is predicted to gain",
        risk="Out of memory at a longer batch than was seen; the margin of 10 % is for that.",
        verify="The update gets shorter; the memory peak stays below 90 %.",
        falsifier="The update stays as long: micro-batches were large enough.",
    ),
)  # fmt: skip
