"""What the scripts draw first: kept in step with `modeOf` and `rowsOf` of `layout.js`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from rlinsight.webapp.timeline.lanes import FLEET_DEVICES

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index

#: Lanes of a group that is not drawn lane by lane at first.
MANY: Final = 24


def first_rows(index: Index, query: Mapping[str, str]) -> dict[str, str | None]:
    """Return the `lanes`, `dense` and `groups` that the view of a query asks for."""
    chosen = {key: _names(query.get(key, "")) for key in ("shut", "strip", "wide", "lane")}
    lanes: list[int] = []
    dense: list[int] = []
    shut: list[str] = []
    for group, members in _groups(index).items():
        own = [i for i in members if index.names.lanes[i].role != "requests"]
        mode = _mode(group, len(own), chosen, is_fleet=index.names.devices > FLEET_DEVICES)
        if mode == "shut":
            shut.append(group)
        elif mode == "strip":
            dense += own
        else:
            lanes += [i for i in members if i in own or index.names.lanes[i].of in chosen["lane"]]
    joined = (",".join(map(str, numbers)) or None for numbers in (lanes, dense))
    return {**dict(zip(("lanes", "dense"), joined, strict=True)), "groups": ",".join(shut) or None}


def _groups(index: Index) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for number, lane in enumerate(index.names.lanes):
        name = f"{lane.group}/{lane.pool}" if lane.pool else lane.group
        groups.setdefault(name, []).append(number)
    return groups


def _mode(group: str, count: int, chosen: Mapping[str, set[str]], *, is_fleet: bool) -> str:
    for key, mode in (("shut", "shut"), ("strip", "strip"), ("wide", "open")):
        if group in chosen[key]:
            return mode
    if count <= MANY:
        return "open"
    return "strip" if group.startswith("devices") and is_fleet else "shut"


def _names(text: str) -> set[str]:
    return {unquote(part) for part in text.split(",") if part}
