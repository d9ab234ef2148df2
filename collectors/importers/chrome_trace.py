"""Events of a Chrome trace as PyTorch's profiler writes it, plain or gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rlinsight.errors import TraceError


@dataclass(frozen=True)
class Event:
    """One complete event: [start_ns, end_ns) since the epoch, and the row it was drawn in."""

    category: str
    name: str
    start_ns: int
    end_ns: int
    row: tuple[str, str]


def read_events(path: Path) -> tuple[list[Event], dict[str, Any]]:
    """Return the complete events of a file and its header.

    Raises TraceError for a file that is torn, is no such trace, or has no time base: without one
    its times cannot be placed beside the rest of the run.
    """
    document = _document(path)
    base_ns = document.get("baseTimeNanoseconds")
    if base_ns is None:
        raise TraceError(
            f"expected `baseTimeNanoseconds` in `{path.name}`, found none: written by a PyTorch "
            "before 2.2, whose times are relative to an unknown start"
        )
    events = list(_complete(document.get("traceEvents", ()), int(base_ns)))
    header = {key: value for key, value in document.items() if key != "traceEvents"}
    return events, header


def _document(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (OSError, EOFError, ValueError) as error:
        raise TraceError(f"`{path.name}` cannot be read as a profiler trace: {error}") from error
    if not isinstance(document, dict):
        raise TraceError(f"expected a JSON object in `{path.name}`, found a list")
    return document


def _complete(events: Any, base_ns: int) -> Iterator[Event]:
    for event in events:
        if event.get("ph") != "X" or "dur" not in event:
            continue
        start_ns = base_ns + _ns(event["ts"])
        yield Event(
            str(event.get("cat", "")),
            str(event.get("name", "")),
            start_ns,
            start_ns + _ns(event["dur"]),
            (str(event.get("pid", "")), str(event.get("tid", ""))),
        )


def _ns(microseconds: Any) -> int:
    """Return microseconds, a number or a text, in ns; a text may have more digits than a float."""
    if isinstance(microseconds, str):
        return int(Decimal(microseconds) * 1000)
    return round(float(microseconds) * 1000)
