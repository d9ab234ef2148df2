"""What the tests of hooks on verl's real classes share: putting them on, and what they recorded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from live_rows import rows

from rlinsight.collectors.verl import identity, wrap


def put_on(tables: Iterable[ModuleType], *modules: ModuleType) -> None:
    """Install those hooks of the tables that belong to the given modules of verl's or vLLM's."""
    known = {module.__name__: module for module in modules}
    for table in tables:
        for hook in table.HOOKS:
            if hook.module in known:
                wrap.apply(known[hook.module], hook)


def counter(folder: Path, lane: str, name: str) -> list[float]:
    found = [r for r in rows(folder, "counters") if (r["lane"], r["name"]) == (lane, name)]
    return [row["value"] for row in found]


def fates(folder: Path) -> dict[str, str]:
    return {row["sample_uid"]: row["fate"] for row in rows(folder, "samples")}


def tagged(attempt: int, uid: str = "g/0", *, validate: bool | None = False) -> str:
    """The engine's id of that attempt of the trajectory's first turn."""
    trajectory = identity.Trajectory(uid, uid.split("/")[0], validate, turns=1)
    token = identity.turn.set(identity.Turn(trajectory, 1, attempt))
    try:
        return identity.tag("5f0c")
    finally:
        identity.turn.reset(token)
