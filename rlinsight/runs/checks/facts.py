"""What a preflight check gets, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlinsight.runs.config import RecordingConfig, RunConfig
from rlinsight.runs.settings import Settings

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """What would go wrong and what to do about it. A warning does not stop the run."""

    message: str
    severity: Severity = "error"


@dataclass(frozen=True)
class Facts:
    """Everything known before a run starts.

    `settings` are the values verl will see, empty for a `wrapped` command of the user's own.
    `command` is what will be started. `environment` is the whole environment it gets.
    """

    config: RecordingConfig
    trace: Path
    url: str | None = None
    settings: Settings = field(default_factory=Settings)
    settings_error: str | None = None
    command: tuple[str, ...] = ()
    wrapped: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def managed(self) -> RunConfig:
        """The configuration of a managed run."""
        assert isinstance(self.config, RunConfig)
        return self.config

    def number(self, key: str) -> int | None:
        """Return an integer that verl will see, or None where it has none."""
        return self.settings.number(key)


@dataclass(frozen=True)
class Check:
    """A named check; `wrapped` says that it also applies to a command of the user's own."""

    name: str
    find: Callable[[Facts], Problem | None]
    wrapped: bool = False
