"""Reading Dash components as a person would: their text, their links, their tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dash.development.base_component import Component

SAMPLES = Path(__file__).parent.parent / "sample_traces"
MODES = ("colocate_async", "fully_async", "separate_async", "sync")

#: Names as an attacker, or the world, may choose them.
HOSTILE = {
    "html": '<img src=x onerror="window.hit=1"><b>bold</b>',
    "script": "</script><script>window.hit=1</script>",
    "long": "very-long-" * 60,
    "rtl": "\u202eevil \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "emoji": "\U0001f680\U0001f469\u200d\U0001f52c run",
    "template": "%{customdata} $x^2$ {{7*7}} ${7*7}",
}


def nodes(root: Any) -> Iterator[Any]:
    """Every component below, and every string between them."""
    if isinstance(root, (list, tuple)):
        for child in root:
            yield from nodes(child)
    elif isinstance(root, Component):
        yield root
        yield from nodes(getattr(root, "children", None))
    elif root is not None:
        yield root


def text(root: Any) -> str:
    """All text of a view."""
    return " ".join(str(node) for node in nodes(root) if not isinstance(node, Component))


def links(root: Any) -> list[str]:
    """Where a view leads to."""
    return [
        node.href for node in nodes(root) if isinstance(node, Component) and hasattr(node, "href")
    ]


def by_id(root: Any, wanted: str) -> Any:
    """The component with an id."""
    found = [n for n in nodes(root) if isinstance(n, Component) and getattr(n, "id", "") == wanted]
    assert found, f"no component `{wanted}`"
    return found[0]


def figures(root: Any) -> list[Any]:
    """The plotly figures of a view."""
    return [node.figure for node in nodes(root) if hasattr(node, "figure")]


def as_json(root: Any) -> Any:
    """What is sent to the browser."""
    from dash._utils import to_json

    return json.loads(to_json(root))


def four_samples(folder: Path) -> Path:
    """A folder with one sample trace of each mode and nothing else."""
    for mode in MODES:
        shutil.copytree(SAMPLES / mode, folder / mode)
    return folder
