"""What is at a place where a trace was expected, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rlinsight.trace.folder import Folder, LocalFolder

#: A folder with very many entries is not searched for long.
_LOOKED_AT: Final = 10_000
_EXPECTED: Final = "expected a trace folder with `manifest.json`, `live/` or a table such as"


def not_a_trace(folder: Folder) -> str:
    """Return why `folder` cannot be opened as a trace, in a sentence."""
    from rlinsight.trace.files import is_trace_folder

    if not isinstance(folder, LocalFolder):
        return f"{_EXPECTED} `spans.arrow`, found none of them in `{folder.where()}`"
    place = folder.path
    if place.is_file():
        return f"expected a trace folder, found the file `{place}`{_its_trace(place)}"
    if not place.is_dir():
        return f"expected a trace folder, found nothing at `{place}`; check the path"
    inner = sorted(one for _, one in zip(range(_LOOKED_AT), place.iterdir(), strict=False))
    traces = [one for one in inner if is_trace_folder(one)]
    if traces:
        many = "a trace" if len(traces) == 1 else f"{len(traces)} traces"
        return (
            f"expected a trace folder, found {many} in `{place}`; name one, such as `{traces[0]}`"
        )
    return f"{_EXPECTED} `spans.arrow`, found none of them in `{place}`"


def _its_trace(file: Path) -> str:
    from rlinsight.trace.files import is_trace_folder

    for parent in list(file.parents)[:2]:
        if is_trace_folder(parent):
            return f", which is in the trace `{parent}`; name that folder"
    return "; name the folder that a recording was written to"
