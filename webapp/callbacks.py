"""What the browser asks for: the page of its address, once more when that has changed."""

from __future__ import annotations

from typing import Any, Final

import dash
import flask
from dash import Input, Output, State

from rlinsight.webapp import later, pages, urls
from rlinsight.webapp.shell import page_name, stamp, view
from rlinsight.webapp.store import Store

#: How long a question whether anything has changed may read traces.
_LOOK_S: Final = 2.0


def add_callbacks(app: dash.Dash, store: Store) -> None:
    """Show the page of the URL, again whenever its run has changed."""
    _show_pages(app, store)
    _follow_runs(app, store)
    _keep_address(app)
    later.add_callbacks(app, store)
    _add_what_if(app, store)


def _show_pages(app: dash.Dash, store: Store) -> None:
    def show(path: str, search: str, _changed: str, shown: str) -> tuple[Any, ...]:
        path, query, address = path or "/", urls.parsed(search), f"{path}{search or ''}"
        now = f"{address} {stamp(store, path, query)}"
        made = view(store, path, query)
        page = pages.find(page_name(path))
        follows = page is not None and not page.refreshes and shown.split(" ")[0] == address
        body = dash.no_update if follows else made.body
        return body, made.navigation, made.run_bar, made.banner, now, made.title

    app.callback(
        Output("page", "children"),
        Output("navigation", "children"),
        Output("run-bar", "children"),
        Output("banner", "children"),
        Output("shown", "data"),
        Output("titled", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("changed", "data"),
        State("shown", "data"),
    )(show)
    app.clientside_callback(
        "function(title) { if (title) document.title = title + ' · rlinsight'; return ''; }",
        Output("titled", "clear_data"),
        Input("titled", "data"),
    )


def _follow_runs(app: dash.Dash, store: Store) -> None:
    """Answer the stamp that a page asks for again and again; where it differs, it is shown anew."""

    def answer() -> flask.Response:
        path, search = (flask.request.args.get(key, "") for key in ("path", "search"))
        # What is shown never changes by itself: whoever asks whether it is still so reads anew.
        mark = stamp(store, path, urls.parsed(search), budget_s=_LOOK_S)
        now = f"{path}{search} {mark}"
        return flask.Response(now, content_type="text/plain; charset=utf-8")

    app.server.add_url_rule("/stamp", "stamp", answer)
    app.clientside_callback(
        "function(shown) { window.rlinsight.follow(shown); return ''; }",
        Output("shown", "clear_data"),
        Input("shown", "data"),
    )


def _keep_address(app: dash.Dash) -> None:
    """Put what is chosen on a page into its address, and the runs chosen into a link."""
    app.clientside_callback(
        "function(search) { return window.rlinsight.mergeQuery(search); }",
        Output("url", "search"),
        Input({"type": "query", "key": dash.ALL}, "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        "function(rows) { return window.rlinsight.compareLink(rows); }",
        Output("compare-selected", "href"),
        Output("compare-selected", "children"),
        Output("compare-selected", "className"),
        Input("runs-grid", "selectedRows"),
    )


def _add_what_if(app: dash.Dash, store: Store) -> None:
    """Answer the sliders while they are dragged, one question at a time."""
    if pages.find("advisor") is None:
        return
    from rlinsight.webapp.prediction import prediction

    app.clientside_callback(
        "function(values) { return window.rlinsight.moveKnobs(); }",
        Output("moved", "clear_data"),
        Input({"type": "knob", "key": dash.ALL}, "value"),
        prevent_initial_call=True,
    )

    def predict(search: str) -> Any:
        query = urls.parsed(search)
        return prediction(store.run(query.get("run", "")), query)

    app.callback(
        Output("prediction", "children"), Input("moved", "data"), prevent_initial_call=True
    )(predict)
