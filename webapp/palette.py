"""One colour per activity, state and cause, the same on every page.

Hues are of the Okabe-Ito set and its shades, which people with any common colour blindness can
tell apart: blue is training, green is generation, pink and grey are overhead, orange to red is a
bubble. Every colour stands out from both a white and a near-black page, so there is one set for
light and dark. Bubbles carry a pattern besides, so that they are told apart without colour.
"""

from __future__ import annotations

from typing import Any, Final

from rlinsight.analyzers.device_time.states import (
    STATE_OF_ACTIVITY,
    STATES,
    UNATTRIBUTED,
    cause_of,
    kind,
)

#: Device state to colour.
STATE: Final[dict[str, str]] = {
    "train.update_actor": "#0072b2",
    "train.update_critic": "#2b8cc4",
    "train.old_log_prob": "#56b4e9",
    "train.ref_log_prob": "#7aa6d6",
    "train.values": "#7f9fd4",
    "train.advantage": "#3c6f9e",
    "generate": "#009e73",
    "reward": "#5aa832",
    "mode_switch": "#aba6b2",
    "weight_sync": "#cc79a7",
    "checkpoint": "#8f4a5e",
    "init": "#a39c92",
    "validate": "#6b6570",
    "bubble.validation": "#e59aa5",
    "bubble.lost_resume": "#b5301f",
    "bubble.poll_interval": "#a8760a",
    "bubble.weight_sync_wait": "#ef8a62",
    "bubble.checkpoint_wait": "#c9705f",
    "bubble.staleness_quota": "#e69f00",
    "bubble.queue_full": "#8f6a00",
    "bubble.drain": "#d9a066",
    "bubble.paused": "#8a5a20",
    "bubble.long_tail": "#c2452d",
    "bubble.wait_samples": "#d55e00",
    "bubble.driver": "#7d5a45",
    "bubble.no_prompts": "#e9a888",
    UNATTRIBUTED: "#8c8c8c",
}

#: Bubble state to pattern, in plotly's shapes; "" is plain.
PATTERN: Final[dict[str, str]] = {
    "bubble.validation": "x",
    "bubble.lost_resume": "+",
    "bubble.poll_interval": ".",
    "bubble.weight_sync_wait": "-",
    "bubble.checkpoint_wait": "|",
    "bubble.staleness_quota": "\\",
    "bubble.queue_full": "+",
    "bubble.drain": "|",
    "bubble.paused": "x",
    "bubble.long_tail": "\\",
    "bubble.wait_samples": "/",
    "bubble.driver": "-",
    "bubble.no_prompts": ".",
    UNATTRIBUTED: "x",
}

#: Span activity to colour; what occupies no device has a quiet colour of its own.
ACTIVITY: Final[dict[str, str]] = {
    **{activity: STATE[state] for activity, state in STATE_OF_ACTIVITY.items()},
    "paused": STATE["bubble.paused"],
    "tool": "#3f9c8f",
    "step": "#7d8794",
}

#: Colour of an activity outside the vocabulary.
OTHER: Final = "#7d8794"

#: Bubble cause to colour.
CAUSE: Final[dict[str, str]] = {
    cause_of(state): STATE[state] for state in STATES if kind(state) == "bubble"
}

#: Colour of the kinds of state in summaries.
KIND: Final = {"useful": "#0072b2", "overhead": "#6b6570", "bubble": "#d55e00"}

#: Colours of a series of runs, in order; more runs start over with another dash.
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6570")


def state_colour(state: str) -> str:
    """Return the colour of a device state."""
    return STATE.get(state, OTHER)


def activity_colour(activity: str) -> str:
    """Return the colour of a span's activity."""
    return ACTIVITY.get(activity, OTHER)


def document() -> dict[str, Any]:
    """Return the palette as JSON values, for scripts in the page."""
    return {
        "state": STATE,
        "activity": ACTIVITY,
        "cause": CAUSE,
        "pattern": PATTERN,
        "other": OTHER,
    }
