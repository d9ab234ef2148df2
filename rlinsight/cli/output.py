"""Standard output and error as a command line needs them: nothing that they meet is a traceback."""

from __future__ import annotations

import io
import os
import sys


class _Reader(io.FileIO):
    """A file descriptor whose reader may go away: what nobody reads is no failure."""

    def write(self, data: object, /) -> int:
        try:
            written: int = super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            discard(self.fileno())
            return len(memoryview(data))  # type: ignore[arg-type]
        return written


def prepare() -> None:
    """Let output survive names that are no text, and a `| head` that has seen enough.

    A command whose reader has gone does its work and keeps its exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    out = sys.stdout
    if out is sys.__stdout__ and isinstance(out, io.TextIOWrapper):
        out.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Reader(out.fileno(), "w", closefd=False)),
            encoding=out.encoding,
            errors=out.errors,
            line_buffering=out.isatty(),
        )


def discard(descriptor: int) -> None:
    """Lead what is still written to `descriptor` nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
