"""Every table of the app as a file, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Final

import flask
import polars as pl

from rlinsight.errors import RlinsightError
from rlinsight.webapp import urls
from rlinsight.webapp.comparison import comparison, opened
from rlinsight.webapp.store import Store
from rlinsight.webapp.summary import Summary
from rlinsight.webapp.tables import TABLES, Table

_CSV: Final = "text/csv; charset=utf-8"
_PARQUET: Final = "application/vnd.apache.parquet"


def register(server: flask.Flask, store: Store) -> None:
    """Serve every table as `/download/NAME.csv` and `/download/NAME.parquet`."""

    @server.get("/download/<name>.<kind>")
    def _download(name: str, kind: str) -> flask.typing.ResponseReturnValue:
        table = TABLES.get(name)
        if table is None or kind not in ("csv", "parquet"):
            return flask.Response("no such table\n", 404, content_type="text/plain")
        query = flask.request.args
        try:
            frame = table.frame(_source(table, store, query))
        except RlinsightError as error:
            return flask.Response(f"{error}\n", 404, content_type="text/plain; charset=utf-8")
        return _file(frame, f"{name}.{kind}", kind)


def _source(table: Table, store: Store, query: Mapping[str, str]) -> object:
    if table.of == "run":
        return store.run(query.get("run", ""))
    if table.of == "folder":
        return _chosen(store, query)
    return comparison(opened(store, query)[0], query)


def _chosen(store: Store, query: Mapping[str, str]) -> list[Summary]:
    known = [summary for summary in store.summaries() if summary is not None]
    wanted = urls.ids(query, "runs")
    return [summary for summary in known if not wanted or summary.id in wanted]


def _file(frame: pl.DataFrame, name: str, kind: str) -> flask.Response:
    buffer = BytesIO()
    if kind == "csv":
        _harmless(frame).write_csv(buffer)
    else:
        frame.write_parquet(buffer)
    response = flask.Response(buffer.getvalue(), content_type=_CSV if kind == "csv" else _PARQUET)
    response.headers["Content-Disposition"] = f"attachment; filename={name}"
    return response


def _harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Quote text that a spreadsheet would run as a formula."""
    text = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(pl.col(name).str.replace(r"^([=+\-@\t\r])", "'${1}") for name in text)
