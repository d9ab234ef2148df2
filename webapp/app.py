"""The Dash app: one page at a time, chosen by the URL, around it a shell that never changes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import dash
import flask

from rlinsight.webapp import callbacks, downloads, pages, security, shell
from rlinsight.webapp.store import Store

_ASSETS: Final = Path(__file__).parent / "assets"

_INDEX: Final = """<!doctype html>
<html lang="en">
  <head>
    {%metas%}
    <title>{%title%}</title>
    {%favicon%}
    {%css%}
  </head>
  <body>
    {%app_entry%}
    <footer>{%config%}{%scripts%}{%renderer%}</footer>
  </body>
</html>
"""


def create_app(root: Path, token: str | None = None) -> dash.Dash:
    """Return the app over the traces below `root`. `app.server` is the WSGI application.

    With a `token`, every request must carry it; without, only requests to this machine are
    answered.
    """
    store = Store(root)
    server = flask.Flask("rlinsight")
    security.protect(server, token)
    register_endpoints(server, store)
    app = make_dash(server)
    app.layout = shell.layout()
    callbacks.add_callbacks(app, store)
    security.restrict_content(server, app.csp_hashes())
    return app


def make_dash(server: flask.Flask, *, eager_loading: bool = False) -> dash.Dash:
    """Return a Dash app on `server` that loads nothing from elsewhere."""
    pages.available()  # Dash must know the component libraries of all pages beforehand
    return dash.Dash(
        "rlinsight",
        server=server,
        title="rlinsight",
        update_title="",
        assets_folder=str(_ASSETS),
        index_string=_INDEX,
        serve_locally=True,
        eager_loading=eager_loading,
        suppress_callback_exceptions=True,
        enable_mcp=False,
    )


def register_endpoints(server: flask.Flask, store: Store) -> None:
    """Serve the tables, and what the timeline asks for."""
    downloads.register(server, store)
    importlib.import_module("rlinsight.webapp.timeline.routes").register(server, store)
