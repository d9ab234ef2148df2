"""Reading the query of a request; what cannot be used is refused with a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline.cells import LONGEST_NS
from rlinsight.webapp.timeline.lanes import GROUPS
from rlinsight.webapp.timeline.window import View

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index

#: Pixels of a view: what no screen has is not computed.
_MOST_PIXELS: Final = 8192


class UnusableError(RlinsightError):
    """A parameter that cannot be used."""


def number(given: Mapping[str, str], key: str, default: float) -> float:
    """Return a parameter as a finite number. Raises UnusableError."""
    text = given.get(key, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > LONGEST_NS / 1e9:
        raise UnusableError(f"expected a number for `{key}`, found `{text[:40]}`")
    return value


def lane_numbers(index: Index, text: str | None) -> tuple[int, ...]:
    """Return lanes like `0-3,7` as numbers. Raises UnusableError."""
    found: dict[int, None] = {}
    last = len(index.names.lanes) - 1
    for part in (text or "").split(","):
        low, _, high = part.partition("-")
        if not part:
            continue
        if not (low.isdecimal() and (not high or high.isdecimal())) or len(part) > 20:
            raise UnusableError(f"expected numbers of lanes like `0-3,7`, found `{part[:40]}`")
        found |= dict.fromkeys(range(int(low), min(last, int(high or low)) + 1))
    return tuple(lane for lane in found if lane <= last)


def view_of(index: Index, given: Mapping[str, str]) -> View:
    """Return the view that a request asks for: the whole trace where it names no window."""
    extent_s = index.names.extent_ns / 1e9
    start_s, end_s = number(given, "from", 0.0), number(given, "to", extent_s)
    if end_s <= start_s:
        raise UnusableError(f"expected a window that ends after it starts, found {start_s}-{end_s}")
    known = {group for group, _ in GROUPS}
    groups = [g for g in given.get("groups", "").split(",") if g.split("/")[0] in known]
    start = round(start_s * 1e9)
    return View(
        start=start,
        end=max(start + 1, round(end_s * 1e9)),
        pixels=max(1, min(_MOST_PIXELS, round(number(given, "px", 1200)))),
        lanes=lane_numbers(index, given.get("lanes")),
        dense=lane_numbers(index, given.get("dense")),
        groups=tuple(dict.fromkeys(groups)),
        gauges=given.get("gauges") == "1",
    )
