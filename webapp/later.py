"""Parts of a page that take a while: the page comes first, and they follow by themselves.

In a view that is written to a file nothing can follow, so there they are made at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import dash
from dash import Input, Output, dcc, html

from rlinsight.errors import RlinsightError
from rlinsight.webapp import components
from rlinsight.webapp.store import Run, Store

#: Name of a part to the module that makes it, in its function of that name.
PARTS: Final = {
    "advice": "rlinsight.webapp.pages.advisor",
    "pareto": "rlinsight.webapp.pages.advisor",
    "first_findings": "rlinsight.webapp.pages.advisor",
}

_at_once: ContextVar[bool] = ContextVar("at_once", default=False)


@contextmanager
def at_once() -> Iterator[None]:
    """Make all parts together with their page."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


def part(name: str, run: Run) -> Any:
    """Return a part of the page of a run, or what stands in for it until it is there."""
    if _at_once.get():
        return html.Div(made(name, run))
    waiting = components.nothing("simulating …")
    return html.Div(
        [
            dcc.Store(id={"type": "later", "key": name}, data=run.id),
            html.Div(waiting, id={"type": "later-shown", "key": name}, className=f"part-{name}"),
        ]
    )


def made(name: str, run: Run) -> Any:
    """Return a part; what it lacks is said in its place."""
    try:
        return getattr(importlib.import_module(PARTS[name]), name)(run)
    except RlinsightError as error:
        return components.nothing(str(error))


def add_callbacks(app: dash.Dash, store: Store) -> None:
    """Fill in the parts after their page."""

    def fill(run_id: str) -> Any:
        name = dash.ctx.outputs_list["id"]["key"]
        if name not in PARTS:
            raise dash.exceptions.PreventUpdate
        return made(name, store.run(run_id))

    app.callback(
        Output({"type": "later-shown", "key": dash.MATCH}, "children"),
        Input({"type": "later", "key": dash.MATCH}, "data"),
    )(fill)
