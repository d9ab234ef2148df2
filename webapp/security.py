"""Who may ask, and what a page may load: the same rules for every request of the server."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

import flask

COOKIE: Final = "rlinsight_token"
_LOOPBACK: Final = {"127.0.0.1", "localhost", "[::1]"}


def protect(server: flask.Flask, token: str | None) -> None:
    """Refuse requests without the token; without one, those not addressed to this machine.

    The latter keeps a page of another site, whose name was made to point here, from reading.
    """

    @server.before_request
    def _admit() -> flask.typing.ResponseReturnValue | None:
        if token is None:
            host = flask.request.host
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name not in _LOOPBACK:
                return _refused("this server answers only requests to 127.0.0.1 or localhost")
            return None
        return _admit_with(token)

    server.after_request(_add_headers)


def _admit_with(token: str) -> flask.typing.ResponseReturnValue | None:
    given = flask.request.args.get("token")
    if given is not None and _same(given, token):
        return _without_token(token)
    if _same(flask.request.cookies.get(COOKIE, ""), token):
        return None
    return _refused("open the address that `rlinsight serve` printed: it carries the token")


def _without_token(token: str) -> flask.typing.ResponseReturnValue:
    """Keep the token in a cookie and drop it from the address, so that links do not carry it."""
    rest = [(k, v) for k, v in flask.request.args.items(multi=True) if k != "token"]
    query = "&".join(f"{_quoted(k)}={_quoted(v)}" for k, v in rest)
    # Only ever a path on this server: `//host` would lead away.
    path = "/" + flask.request.path.lstrip("/")
    response = flask.redirect(f"{path}?{query}" if query else path)
    response.set_cookie(COOKIE, token, httponly=True, samesite="Strict", path="/")
    return response


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _refused(why: str) -> flask.Response:
    return flask.Response(f"refused: {why}\n", 403, content_type="text/plain; charset=utf-8")


def _add_headers(response: flask.Response) -> flask.Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def restrict_content(server: flask.Flask, script_hashes: Sequence[str]) -> None:
    """Let pages load from this server only, and run no script but ours."""
    scripts = " ".join(["'self'", *script_hashes])
    policy = "; ".join(
        (
            "default-src 'self'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )

    @server.after_request
    def _restrict(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = policy
        return response
