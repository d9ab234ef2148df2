"""Addresses within the app. Everything that a view depends on is in its query."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode


def parsed(search: str | None) -> dict[str, str]:
    """Return the query of a URL's `?...` part; of a repeated key the last value."""
    return dict(parse_qsl((search or "").removeprefix("?"), keep_blank_values=True))


def link(path: str, query: Mapping[str, object] | None = None, **more: object) -> str:
    """Return `path?query`; a value of None is left out. Commas and colons stay readable."""
    merged = {**(query or {}), **{key.rstrip("_"): value for key, value in more.items()}}
    given = {key: str(value) for key, value in merged.items() if value is not None}
    return f"{path}?{urlencode(given, safe=',:')}" if given else path


def timeline(run_id: str, start_s: float, end_s: float) -> str:
    """Return the timeline at a window, in seconds since the first row, with some margin."""
    margin = 0.1 * (end_s - start_s)
    return link(
        "/timeline",
        {
            "run": run_id,
            "from": f"{max(start_s - margin, 0):.6g}",
            "to": f"{end_s + margin:.6g}",
        },
    )


def ids(query: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the comma-joined ids under `key`, each once."""
    return tuple(dict.fromkeys(part for part in query.get(key, "").split(",") if part))
