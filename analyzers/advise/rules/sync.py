"""Weight syncs: their cost, their growth, and replicas that one did not reach."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting

SHARE: Final = 0.08
HOOKS: Final = 0.02
#: Share of a sync that moving weights takes at least, to be what is to be made faster.
TRANSFER: Final = 0.50
#: Buckets above this gain nothing more and cost their memory on both sides.
LARGEST_MB: Final = 8192
#: The collective backend of each kind of device, as verl names it: HCCL is "nccl" there, too.
BACKENDS: Final = {"cuda": "nccl", "npu": "nccl"}
EVERY_VERSION_VALIDATED: Final = (
    "each version is validated, so that fewer syncs would mean fewer validations, too"
)
_ENGINE: Final = "actor_rollout_ref.rollout.checkpoint_engine"


def stale_shard(case: Case) -> Proposal | str:
    """A replica that lags behind its peers, or did, generates with old weights unnoticed."""
    stale = [one for one in case.report.balance.versions if one.lagging or one.skipped]
    if not stale:
        return "all replicas took every version"
    worst = max(stale, key=lambda one: (one.lagging, one.versions_behind, len(one.skipped)))
    found, evidence = [], []
    if worst.lagging:
        found.append(f"is {worst.versions_behind} versions behind its peers")
        evidence.append(
            case.shown("versions behind", worst.versions_behind, "versions", whole_run=True)
        )
    if worst.skipped:
        found.append(f"never took {len(worst.skipped)} versions that a peer took")
        evidence.append(
            case.shown("versions skipped", len(worst.skipped), "versions", whole_run=True)
        )
    says = (
        f"`{worst.lane}` {' and '.join(found)}: its samples are staler than they are counted. Find "
        "out why before anything is tuned."
    )
    return Proposal(says, tuple(evidence))


def sync_cost(case: Case) -> Proposal | str:
    """Fewer syncs where they take much of the trainer's time."""
    if case.mode() not in ("separate_async", "fully_async"):
        return "this mode synchronizes after every step"
    if case.knobs is None:
        return NOT_CALIBRATED
    share = case.state("trainer", "weight_sync") + case.bubble("trainer", "weight_sync_wait")
    if share < SHARE:
        return f"syncs take {share:.1%} of the trainer's time"
    fewer = case.half_the_syncs()
    if fewer is None:
        return EVERY_VERSION_VALIDATED
    effect = case.best([fewer])
    if effect is None:
        return "fewer syncs are predicted to gain nothing"
    says = f"Weight syncs take {share:.0%} of the trainer's time: synchronize half as often."
    shown = case.shown("weight sync", share, owner="trainer", causes=("weight_sync_wait",))
    return case.propose(says, (shown,), effect)


def sync_transfer(case: Case) -> Proposal | str:
    """Moving the weights is what syncs take long for: a faster backend, then larger buckets."""
    report = case.report.sync
    share = case.state("trainer", "weight_sync") + case.bubble("trainer", "weight_sync_wait")
    if report is None or share < SHARE:
        return f"syncs take {share:.1%} of the trainer's time"
    if case.emulated:
        return f"syncs take {share:.1%}, as the cost model of the emulated devices says"
    kind = report.by_backend[report.main]
    moved = kind.mean_s.get("transfer", 0.0) * kind.syncs
    part = moved / kind.total_s if kind.total_s else 0.0
    if kind.dominant != "transfer" or part < TRANSFER:
        return f"moving weights is {part:.0%} of a sync"
    override = _faster(case)
    if override is None:
        return f"moving weights is {part:.0%} of a sync, over the fastest setting known here"
    says = (
        f"Syncs take {share:.0%} of the trainer's time, {part:.0%} of it moving weights over "
        f"`{report.main}`: move them faster. All that can be gained is {share * part:.0%}."
    )
    evidence = (
        case.shown("weight sync", share, owner="trainer", causes=("weight_sync_wait",)),
        case.shown("moving weights, of a sync", part),
    )
    return Proposal(says, evidence, {}, (override,))


def _faster(case: Case) -> str | None:
    """Return the override of the device's own collective backend, or of larger buckets."""
    backend = setting(case.config, f"{_ENGINE}.backend")
    kinds = case.report.run.device_kinds
    best = next((BACKENDS[kind] for kind in kinds if kind in BACKENDS), None)
    if backend == "naive" and best is not None and case.mode() in ("separate_async", "fully_async"):
        return f"{_ENGINE}.backend={best}"
    size = setting(case.config, f"{_ENGINE}.update_weights_bucket_megabytes")
    if isinstance(size, int) and size < LARGEST_MB:
        return f"{_ENGINE}.update_weights_bucket_megabytes={2 * size}"
    return None


def sync_growth(case: Case) -> Proposal | str:
    """Syncs that get slower over the run hint at a leak or a backend that does not scale."""
    report = case.report.sync
    if report is None or not report.growing:
        return "the syncs do not grow"
    kinds = {name: kind for name, kind in report.by_backend.items()
             if kind.trend is not None and kind.trend.growing}  # fmt: skip
    name, kind = max(kinds.items(), key=lambda item: item[1].total_s)
    assert kind.trend is not None
    says = (
        f"Weight syncs over `{name}` take {kind.trend.growth:.1f} times as long as at the start, "
        f"most of it {kind.dominant or 'in no recorded stage'}: look for what grows there (memory, "
        "aborted requests, a file system) before tuning."
    )
    return Proposal(says, (case.shown("growth of sync time", kind.trend.growth, "x"),))


def recording_overhead(case: Case) -> Proposal | str:
    """Recording itself must not be what is tuned for.

    Processes run beside each other: what the one with most spends in hooks may slow the run, the
    sum over all of a large job says nothing of that.
    """
    share = case.report.trust.hook_share_largest
    if share is None or share < HOOKS:
        return "recording takes too little time to matter"
    says = (
        f"Recording takes {share:.1%} of the wall time of one process: disable hooks that you do "
        "not need."
    )
    return Proposal(
        says, (case.shown("time inside of hooks, process with most", share, whole_run=True),)
    )


CORRECTNESS: Final = (
    Rule(
        name="stale_shard", tier=1, variables="sync", check=stale_shard, mend_first=True,
        asks="Did every replica take every version?",
        fires="a replica is behind its peers or skipped a version",
        risk="None: it is a defect, not a setting.",
        verify="All replicas acknowledge each version.",
        falsifier="The replica's acknowledgements were not recorded.",
    ),
)  # fmt: skip
RULES: Final = (
    Rule(
        name="sync_growth", tier=2, variables="sync", check=sync_growth,
        asks="Do weight syncs get slower over the run?",
        fires="the last third of the syncs takes at least twice as long as the first, and the "
        "trend is significant",
        risk="None: it is a defect, not a setting.",
        verify="Sync times stay level.",
        falsifier="Requests in flight grew, not the transfer: see the stages.",
    ),
    Rule(
        name="sync_transfer", tier=2, variables="sync", check=sync_transfer,
        asks="Is moving the weights what syncs take long for?",
        fires=f"syncs and waits for them take at least {SHARE:.0%} of the trainer's time, at least "
        f"{TRANSFER:.0%} of it moving weights, and backend or bucket size can be faster",
        risk="Larger buckets need their memory on both sides; another backend its own network.",
        verify="The transfer stage of a sync gets shorter.",
        falsifier="It stays: the network is full, or the replicas are late.",
    ),
    Rule(
        name="sync_cost", tier=2, variables="sync", check=sync_cost, costs_quality=True,
        asks="Are weights synchronized more often than it is worth?",
        fires=f"syncs and waits for them take at least {SHARE:.0%} of the trainer's time, and half "
        "as many are predicted to gain",
        risk="Samples are older in updates; the same fraction of staleness spans more of them.",
        verify="The share of syncs halves; rollout_corr/kl stays.",
        falsifier="Throughput stays: the quota, not the sync, held the rollouts.",
    ),
    Rule(
        name="recording_overhead", tier=2, variables="engine", check=recording_overhead,
        asks="Does the recording slow the run down?",
        fires=f"hooks of one process take at least {HOOKS:.0%} of the wall time",
        risk="What is not recorded cannot be analyzed.",
        verify="Step times fall without hooks.",
        falsifier="Step times stay: hooks ran beside the work.",
    ),
)  # fmt: skip
