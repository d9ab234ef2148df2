"""Where to jump: a step, a version, the next interval of an activity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.webapp.timeline.cells import Ints, bisect
from rlinsight.webapp.timeline.index import NULL
from rlinsight.webapp.timeline.lanes import state_document
from rlinsight.webapp.timeline.query import UnusableError, number

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index

_LONGEST_TEXT: Final = 200


def find(index: Index, given: Mapping[str, str]) -> dict[str, Any]:
    """Return where to go: `from_s`, `to_s`, and what is there; both None where there is nothing.

    Of `step=N` or `version=N` that one; of `activity=TEXT` the first interval behind (`dir=-1`:
    the last before) the time `at`, among states whose label has the text in it; of `lane=N`, and a
    `row` of it, the same among all its states.
    """
    a = index.arrays
    if "step" in given:
        return _landmark(given, "step", a.step_number, a.step_start, a.step_end)
    if "version" in given:
        ends = np.append(a.version_start[1:], index.names.extent_ns)
        return _landmark(given, "version", a.version_number, a.version_start, ends)
    backwards = number(given, "dir", 1.0) < 0
    at = round(number(given, "at", -1.0) * 1e9)
    if "activity" in given:
        text = given["activity"][:_LONGEST_TEXT]
        return _nearest(index, _of_activity(index, text), at, text, backwards=backwards)
    if "lane" in given:
        lane = round(number(given, "lane", 0.0))
        if not 0 <= lane < len(index.names.lanes):
            raise UnusableError(f"expected a lane of 0-{len(index.names.lanes) - 1}, found {lane}")
        series = index.series_of(lane)
        if given.get("row"):
            series = series[a.series_row[series] == round(number(given, "row", 0.0))]
        return _nearest(index, series, at, index.names.lanes[lane].name, backwards=backwards)
    raise UnusableError("expected one of `step`, `version`, `activity` and `lane`, found none")


def _landmark(
    given: Mapping[str, str], key: str, numbers: Ints, starts: Ints, ends: Ints
) -> dict[str, Any]:
    wanted = round(number(given, key, 0.0))
    at = np.flatnonzero(numbers == wanted)
    if not len(at):
        known = numbers[numbers != NULL]
        extent = f"{known.min()} to {known.max()}" if len(known) else "none"
        return {"from_s": None, "to_s": None, "text": f"no {key} {wanted}, there are {extent}"}
    first = int(at[0])
    return {
        "from_s": int(starts[first]) / 1e9,
        "to_s": int(ends[first]) / 1e9,
        "text": f"{key} {wanted}",
    }


def _of_activity(index: Index, text: str) -> Ints:
    labels = [state_document(name)["label"] for name in index.names.states]
    states = [i for i, label in enumerate(labels) if text.casefold() in label.casefold()]
    return np.flatnonzero(np.isin(index.arrays.series_state, states)).astype(np.int64)


def _nearest(index: Index, series: Ints, at: int, text: str, *, backwards: bool) -> dict[str, Any]:
    a = index.arrays
    low, high = a.bounds[series], a.bounds[series + 1]
    total = int((high - low).sum())
    place = bisect(a.start, low, high, at if backwards else at + 1)
    place, kept = (place - 1, place > low) if backwards else (place, place < high)
    series, place = series[kept], place[kept]
    if not len(place):
        found = f"{total} intervals of `{text}`" if total else f"nothing is called `{text}`"
        return {"from_s": None, "to_s": None, "text": found, "total": total}
    best = int(np.argmax(a.start[place]) if backwards else np.argmin(a.start[place]))
    item, chosen = int(place[best]), int(series[best])
    return {
        "from_s": int(a.start[item]) / 1e9,
        "to_s": int(a.end[item]) / 1e9,
        "lane": int(a.series_lane[chosen]),
        "row": int(a.series_row[chosen]),
        "state": int(a.series_state[chosen]),
        "text": state_document(index.names.states[a.series_state[chosen]])["label"],
        "total": total,
    }
