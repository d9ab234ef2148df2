"""rlinsight: where the device time of an asynchronous RL run went, why, and what to change.

Names are imported on first use, so that `import rlinsight` costs a training process nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rlinsight.trace.compact import compact
    from rlinsight.trace.reader import Trace
    from rlinsight.trace.reader import open_trace as open
    from rlinsight.trace.recorder import (
        begin,
        counter,
        marker,
        recording,
        span,
        start,
        stop,
        traced,
    )
    from rlinsight.trace.topology import Device, Lane, Topology
    from rlinsight.trace.writer import TraceWriter

_HOMES = {
    "compact": ("rlinsight.trace.compact", "compact"),
    "Trace": ("rlinsight.trace.reader", "Trace"),
    "open": ("rlinsight.trace.reader", "open_trace"),
    "TraceWriter": ("rlinsight.trace.writer", "TraceWriter"),
    **{name: ("rlinsight.trace.topology", name) for name in ("Device", "Lane", "Topology")},
    **{
        name: ("rlinsight.trace.recorder", name)
        for name in (
            "begin", "counter", "marker", "recording", "span", "start", "stop", "traced",
        )
    },
}  # fmt: skip

__all__ = [
    "Device",
    "Lane",
    "Topology",
    "Trace",
    "TraceWriter",
    "begin",
    "compact",
    "counter",
    "marker",
    "open",
    "recording",
    "span",
    "start",
    "stop",
    "traced",
]


# A process that `python -m` starts in a checkout finds this folder before the installed package,
# and without collectors, analyzers and webapp, which pyproject.toml maps into it.
if not (Path(__file__).parent / "collectors").exists():
    __path__.append(str(Path(__file__).parents[1]))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `rlinsight` has no attribute `{name}`")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
