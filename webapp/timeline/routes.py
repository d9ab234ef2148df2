"""The timeline's endpoints: names, windows, details, search, the slice for Perfetto."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import flask

from rlinsight.errors import RlinsightError
from rlinsight.webapp.store import Store, UnknownRunError
from rlinsight.webapp.timeline import detail, export, find, meta, table, wire
from rlinsight.webapp.timeline.provider import Indexes, IndexingError
from rlinsight.webapp.timeline.query import UnusableError, lane_numbers, number, view_of
from rlinsight.webapp.timeline.window import answer

if TYPE_CHECKING:
    from rlinsight.webapp.store import Run
    from rlinsight.webapp.timeline.index import Index

Arguments = Mapping[str, str]
P = ParamSpec("P")

#: Answers of this size and more are compressed where the browser can read it.
_COMPRESSED_FROM: Final = 1 << 16


def register(server: flask.Flask, store: Store, indexes: Indexes | None = None) -> None:
    """Add the endpoints below `/timeline/` to the server."""
    known = indexes or Indexes()

    def endpoint(name: str, make: Callable[[Index, Run, Arguments], flask.Response]) -> None:
        @_explained
        def respond() -> flask.Response:
            arguments = flask.request.args.to_dict()
            run = store.run(arguments.get("run", ""))
            return make(known.get(run), run, arguments)

        server.add_url_rule(f"/timeline/{name}", f"timeline_{name}", respond, methods=["GET"])

    endpoint("meta", lambda index, run, _: _json(meta.meta(index, run)))
    endpoint("window", _window)
    endpoint("detail", lambda index, run, given: _json(detail.detail(index, run, given)))
    endpoint("find", lambda index, _, given: _json(find.find(index, given)))
    endpoint("table", lambda index, _, given: _table(index, given))
    endpoint("export", _export)


def _explained(respond: Callable[P, flask.Response]) -> Callable[P, flask.Response]:
    """Turn what went wrong into an answer that says so."""

    @wraps(respond)
    def explained(*args: P.args, **kwargs: P.kwargs) -> flask.Response:
        try:
            return respond(*args, **kwargs)
        except IndexingError as error:
            return _json({"indexing": str(error)}, 202)
        except UnknownRunError as error:
            return _json({"error": str(error)}, 404)
        except UnusableError as error:
            return _json({"error": str(error)}, 400)
        except RlinsightError as error:
            return _json({"error": str(error)}, 422)

    return explained


def _json(content: Any, status: int = 200) -> flask.Response:
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return _response(body, "application/json", status)


def _response(body: bytes, kind: str, status: int = 200) -> flask.Response:
    response = flask.Response(body, status, content_type=kind)
    response.headers["Cache-Control"] = "no-store"
    accepted = flask.request.headers.get("Accept-Encoding", "")
    if len(body) >= _COMPRESSED_FROM and kind == "application/json" and "gzip" in accepted:
        response.set_data(gzip.compress(body, 1))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _window(index: Index, run: Run, given: Arguments) -> flask.Response:
    extra = {
        "duration_s": index.names.extent_ns / 1e9,
        "live": run.live,
        "stamp": f"{run.stamp}.{index.names.extent_ns}",
    }
    return _response(answer(index, view_of(index, given), extra), wire.MEDIA_TYPE)


def _table(index: Index, given: Arguments) -> flask.Response:
    rows = table.rows(index, view_of(index, given))
    if given.get("format") != "csv":
        return _json({"rows": rows})
    response = _response(table.csv(rows).encode(), "text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = 'attachment; filename="timeline.csv"'
    return response


def _export(index: Index, run: Run, given: Arguments) -> flask.Response:
    start_s, end_s = number(given, "from", 0.0), number(given, "to", index.names.extent_ns / 1e9)
    lanes = lane_numbers(index, given.get("lanes")) if "lanes" in given else None
    body = export.chrome_trace(index, round(start_s * 1e9), round(end_s * 1e9), lanes)
    response = flask.Response(gzip.compress(body, 5), content_type="application/gzip")
    name = f"{run.id}-{start_s:.3f}-{end_s:.3f}.json.gz"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
