"""Names for people: states, causes, pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlinsight.analyzers.device_time.states import UNATTRIBUTED, cause_of, kind
from rlinsight.report.verdict import CAUSES
from rlinsight.webapp.text import shortened

KINDS: Final = {"useful": "useful", "overhead": "overhead", "bubble": "idle"}


def state(name: str) -> str:
    """Return `update actor` for `train.update_actor`, `wait samples` for a bubble's state."""
    if name == UNATTRIBUTED:
        return "unattributed"
    return name.rpartition(".")[2].replace("_", " ")


def meaning(name: str) -> str:
    """Return what a device does in this state, for a reader who sees it for the first time."""
    if kind(name) == "bubble":
        return f"idle: {CAUSES.get(cause_of(name), cause_of(name))}"
    return f"{KINDS[kind(name)]}: {state(name)}"


def cause(name: str) -> str:
    """Return a cause in words."""
    return name.replace("_", " ")


#: So many unknown ids are named, each by so many characters.
_NAMED: Final = 5
_SHOWN: Final = 80


def no_such_runs(missing: Sequence[str]) -> str:
    """Return that these ids belong to no run, the first of many by name."""
    named = ", ".join(f"`{shortened(run_id, _SHOWN)}`" for run_id in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"no run {named}{more} in the served folder"
