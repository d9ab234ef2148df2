"""`rlinsight serve`."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rlinsight.cli.shell import opening
from rlinsight.errors import MissingExtraError, RlinsightError

if TYPE_CHECKING:
    import flask

_DEFAULT_PORT: Final = 8050
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
#: Requests wait on the disk and on each other's analysis; the work itself is in native threads.
_THREADS: Final = 16
_BACKLOG: Final = 256


def serve(
    folder: Annotated[str, typer.Argument(help="A folder with traces in it, or one trace.")],
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Port; 8050 or, if that is taken, a free one.", min=1, max=65535),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Secret that the address must carry; made up where one is needed."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    get: Annotated[
        str | None, typer.Option(help="Write this view, such as '/overview?run=ID', and end.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="For --get: a .html or .png file.")
    ] = None,
) -> None:
    """Open a page on recorded runs: overview, timeline, staleness, lengths, comparison.

    Runs that are being recorded are shown as they grow. Nothing is loaded from elsewhere and
    nothing leaves this machine. docs/serve.md describes the pages.
    """
    root = _folder(folder)
    if (get is None) != (output is None):
        raise RlinsightError("expected both --get and --output, found only one of them")
    try:
        from rlinsight.webapp.app import create_app
    except ImportError as error:
        raise MissingExtraError("`rlinsight serve`", "web") from error
    if get is not None and output is not None:
        _write(root, get, output)
        return
    secret = token or (None if host in _LOOPBACK else secrets.token_urlsafe(18))
    app = create_app(root, secret)
    _run(app.server, root, _listening(host, port), host, secret, opens=not no_open)


def _folder(text: str) -> Path:
    """Return the folder of traces, or the one trace, that is to be shown."""
    folder = Path(text)
    if text and folder.is_dir():
        return folder
    found = "a file" if folder.is_file() else "nothing" if text else "an empty text"
    raise RlinsightError(f"expected a folder of traces, found {found}: `{text}`")


def _write(root: Path, address: str, output: Path) -> None:
    from rlinsight.webapp.export import write_view

    write_view(root, address, output)
    typer.echo(f"wrote {output}\nnext: {opening(output)}")


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket that is bound to the wanted port, or to a free one where none was named."""
    try:
        return _bound(host, _DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is not None:
            why = error.strerror or error
            raise RlinsightError(
                f"cannot listen on {host} port {port}: {why}; name another --port"
            ) from error
    try:
        return _bound(host, 0)
    except OSError as error:
        raise RlinsightError(f"cannot listen on {host}: {error.strerror or error}") from error


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _run(
    server: flask.Flask,
    folder: Path,
    listener: socket.socket,
    host: str,
    secret: str | None,
    *,
    opens: bool,
) -> None:
    import logging

    import waitress

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{listener.getsockname()[1]}/"
    address += f"?token={secret}" if secret else ""
    typer.echo(f"{folder} is served at {address}   (Ctrl-C ends it)")
    if host not in _LOOPBACK:
        typer.echo(
            "warning: whoever reaches this address and has the token can read these traces; the "
            "connection is not encrypted",
            err=True,
        )
    if opens:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    waitress.serve(server, sockets=[listener], threads=_THREADS, ident="rlinsight", _quiet=True)
