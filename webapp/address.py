"""The address of a view that is asked for by hand: what is wrong with it, before it is drawn.

A page in a browser makes the best of an address that it cannot use; a file that nobody looks at
must not be of another view than the one that was meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from rlinsight.errors import RlinsightError, did_you_mean
from rlinsight.webapp import pages, shell, urls
from rlinsight.webapp.store import Store
from rlinsight.webapp.text import shortened

#: So many names of what there is are listed.
_LISTED: Final = 12
_TIMES: Final = ("from", "to")


def checked(store: Store, address: str) -> tuple[str, dict[str, str]]:
    """Return path and query of `address`.

    Raises RlinsightError, naming what there is, for a page or run that there is not, and for times
    that are none.
    """
    parts = urlsplit(address)
    path, query = parts.path or "/", urls.parsed(parts.query)
    name = shell.page_name(path)
    page = pages.find(name)
    if page is None:
        known = [f"/{one.name}" for one in pages.available()]
        raise RlinsightError(_expected("a page", f"/{name}", known))
    runs = list(store.found())
    if page.of_run:
        _known_run(query.get("run", ""), runs)
    for run_id in urls.ids(query, "runs"):
        _known_run(run_id, runs)
    _times(query)
    return path, query


def _known_run(run_id: str, runs: Iterable[str]) -> None:
    if run_id not in runs:
        raise RlinsightError(_expected("`run=` with a run", run_id, runs))


def _expected(what: str, found: str, known: Iterable[str]) -> str:
    names = list(known)
    listed = ", ".join(shortened(name) for name in names[:_LISTED]) or "none"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    given = f"`{shortened(found)}`" if found else "none"
    return f"expected {what} ({listed}{more}), found {given}{did_you_mean(found, names)}"


def _times(query: Mapping[str, str]) -> None:
    given = {key: _seconds(key, query[key]) for key in _TIMES if query.get(key)}
    if len(given) == len(_TIMES) and given["from"] >= given["to"]:
        raise RlinsightError(
            f"expected `from` before `to`, found {query['from']} and {query['to']}"
        )


def _seconds(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RlinsightError(
            f"expected `{key}=` in seconds since the first row, found `{shortened(text)}`"
        )
    return value
