"""Every error that rlinsight raises on purpose.

A message says what was expected, what was found and where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable


class RlinsightError(Exception):
    """Base of all deliberate errors; the CLI prints the message and exits with `exit_code`."""

    exit_code = 2


class TraceError(RlinsightError):
    """A trace that cannot be opened, read or written."""


class ConfigError(RlinsightError):
    """A run configuration that cannot be used."""


class PreflightError(RlinsightError):
    """A run that would fail or mislead if it were started."""


class BaselineError(RlinsightError):
    """A baseline that cannot be read, written, or compared with."""


class MissingExtraError(RlinsightError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the `{extra}` extra, which is not installed; "
            f"run `pip install 'rlinsight[{extra}]'`"
        )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`, or begins with it; None where none does.

    The last part of a dotted key counts for the whole, too: `staleness` is like
    `async_training.staleness_threshold`.
    """
    import difflib

    full = {one.lower(): one for one in known}
    last = {one.rsplit(".", 1)[-1]: full[one] for one in reversed(full)}
    for names in (full, last):
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        if near:
            return names[near[0]]
    begun = (full[one] for one in full if len(name) > 2 and one.startswith(name.lower()))
    return next(begun, None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?`, empty where nothing is alike."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean `{near}`?"


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence that names the known ones, the nearest first asked for."""
    names = list(known)
    return f"expected {what} ({', '.join(names)}), found `{name}`{did_you_mean(name, names)}"
