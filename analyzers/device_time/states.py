"""The states a device can be in, and which one wins when records overlap.

Every device-nanosecond belongs to exactly one state. Where several records cover it, the
first in `PRIORITY` wins: training beats everything that runs beside it on the same device;
a replica that is stopped for a weight sync is not generating, though its requests are still
in flight; what merely waits comes last.
"""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["useful", "overhead", "bubble"]

UNATTRIBUTED: Final = "unattributed"

_TRAIN: Final = (
    "update_actor", "update_critic", "old_log_prob", "ref_log_prob", "values", "advantage",
)  # fmt: skip

#: The states of training.
TRAINING: Final = tuple(f"train.{activity}" for activity in _TRAIN)

#: Span activity to device state. Activities that are missing here occupy no device.
STATE_OF_ACTIVITY: Final[dict[str, str]] = {
    **{activity: f"train.{activity}" for activity in _TRAIN},
    "reward": "reward",
    "weight_sync": "weight_sync",
    "switch_to_rollout": "mode_switch",
    "switch_to_trainer": "mode_switch",
    "sleep": "mode_switch",
    "wake": "mode_switch",
    "validate": "validate",
    "checkpoint": "checkpoint",
    "init": "init",
    "wait_samples": "bubble.wait_samples",
}

#: Reason of a `paused` span to the bubble it makes; any other reason is unknown.
STATE_OF_PAUSE: Final[dict[str, str]] = {
    "staleness_quota": "bubble.staleness_quota",
    "queue_full": "bubble.queue_full",
    "weight_sync": "bubble.weight_sync_wait",
    "drain": "bubble.drain",
}
PAUSED_UNKNOWN: Final = "bubble.paused"

#: Causes of a bubble, most specific first: where evidence for two overlaps, the first decides.
#: `causes` says from which records each is decided; `docs/analysis.md` says how to read it.
BUBBLES: Final[tuple[str, ...]] = (
    "bubble.validation",
    "bubble.lost_resume",
    "bubble.poll_interval",
    "bubble.weight_sync_wait",
    "bubble.checkpoint_wait",
    "bubble.staleness_quota",
    "bubble.queue_full",
    "bubble.drain",
    PAUSED_UNKNOWN,
    "bubble.long_tail",
    "bubble.wait_samples",
    "bubble.driver",
    "bubble.no_prompts",
)

PRIORITY: Final[tuple[str, ...]] = (
    *TRAINING,
    "mode_switch",
    "weight_sync",
    "checkpoint",
    "init",
    "validate",
    "generate",
    "reward",
    *BUBBLES,
)

#: All states of the ledger; what no record covers comes last.
STATES: Final = (*PRIORITY, UNATTRIBUTED)

STATE_ID: Final = {state: i for i, state in enumerate(PRIORITY)}


def kind(state: str) -> Kind:
    """Return whether a state is useful work, overhead, or part of a bubble."""
    if state == UNATTRIBUTED or state.startswith("bubble."):
        return "bubble"
    if state in {"mode_switch", "weight_sync", "checkpoint", "init", "validate"}:
        return "overhead"
    return "useful"


def cause_of(state: str) -> str:
    """Return the cause of a bubble state; what no record explains is `unknown`."""
    return "unknown" if state == UNATTRIBUTED else state.removeprefix("bubble.")
