"""Every error that rlinsight raises on purpose.

A message says what was expected, what was found and where, and what to do.
"""

from __future__ import annotations


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
