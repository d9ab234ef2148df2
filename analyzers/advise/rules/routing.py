"""Tier 2: whether the work reaches all devices: requests over replicas, sequences over ranks."""

from __future__ import annotations

from functools import partial
from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting
from rlinsight.analyzers.parallel import data_parallel_ranks

PADDED: Final = 0.05


def request_routing(case: Case) -> Proposal | str:
    """One replica that carries the requests, or a client that sends one at a time."""
    spread = case.report.balance.requests
    if spread is None or spread.verdict == "even":
        return "requests are spread evenly" if spread is not None else "one replica, or unknown"
    share = spread.routed[spread.busiest]
    if spread.verdict == "serialized":
        says = (
            f"Only {spread.mean_in_flight:.1f} requests are in flight over all replicas: the "
            "client sends them one after the other. Raise its concurrency, not the number of "
            "devices."
        )
        return Proposal(says, (case.shown("requests in flight", spread.mean_in_flight, "count"),))
    says = (
        f"`{spread.busiest}` carries {share:.0%} of the requests of {len(spread.shares)} replicas: "
        "look at the routing (sticky sessions, replicas missing from the balancer)."
    )
    return Proposal(says, (case.shown("share of the busiest replica in requests", share),))


def divisibility(case: Case) -> Proposal | str:
    """Batches that do not divide by the ranks are padded with sequences that train nothing."""
    if case.knobs is None:
        return "not calibrated"
    ranks = data_parallel_ranks(partial(setting, case.config), case.knobs.trainer_devices)
    if ranks is None:
        return f"{case.knobs.trainer_devices} trainer devices do not form whole ranks"
    sequences = case.knobs.update_prompts * case.knobs.group_size
    padded = -sequences % ranks
    share = padded / (sequences + padded)
    if share < PADDED:
        return f"{sequences} sequences an update divide by {ranks} ranks, {padded} short"
    says = (
        f"{sequences} sequences an update do not divide by {ranks} data-parallel ranks: {padded} "
        f"of {sequences + padded} are padding. Choose a mini-batch whose sequences divide."
    )
    return Proposal(says, (case.shown("padding", share),))


RULES: Final = (
    Rule(
        name="request_routing", tier=2, variables="engine", check=request_routing,
        asks="Do all replicas get requests, and enough of them?",
        fires="one replica carries most of the requests, or hardly more than one is in flight",
        risk="None: it is a defect, not a setting.",
        verify="Requests spread evenly; slots fill.",
        falsifier="The other replicas had just been added.",
    ),
    Rule(
        name="divisibility", tier=2, variables="batching", check=divisibility,
        asks="Do batches divide by the data-parallel ranks?",
        fires=f"at least {PADDED:.0%} of the sequences of an update are padding",
        risk="Another mini-batch changes the optimization.",
        verify="No padding; the update gets shorter by about its share.",
        falsifier="Batches are filtered or split before they are dispatched.",
    ),
)  # fmt: skip
