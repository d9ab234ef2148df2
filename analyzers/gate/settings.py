"""What a team may set: how large a change matters, and how sure the gate has to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from typing import Final, Literal

from rlinsight.analyzers.gate.observation import Better

Correction = Literal["bh", "holm", "none"]

#: What windows are matched on: a condition explains a difference, and is none itself.
CONDITIONS: Final = ("validations", "checkpoints", "length")

#: Of a logged metric the name in the trace follows this.
LOGGED: Final = "logged:"


@dataclass(frozen=True)
class MetricSettings:
    """Settings of one metric; None leaves its default.

    The corridor around the reference is +- max(`relative` x reference, `absolute`), the latter
    in the metric's unit. `better` is the good direction, `gates` whether it may fail a build,
    `match_length` whether runs are compared at the same response length.
    """

    relative: float | None = None
    absolute: float | None = None
    better: Better | None = None
    gates: bool | None = None
    match_length: bool | None = None
    skip: bool | None = None


@dataclass(frozen=True)
class Acknowledged:
    """A change that is known and accepted: the metrics (fnmatch), why, and until which day.

    `up_to` is the largest accepted relative change, None for any.
    """

    metric: str
    reason: str
    until: date
    up_to: float | None = None


@dataclass(frozen=True)
class Settings:
    """How to judge.

    `alpha` is the chance of a false alarm per check, over all its metrics; `history` how many
    trusted runs make the reference, the latest first; `min_windows` the fewest steady windows
    that can be judged; `run_to_run` the spread between equal runs that is assumed before there
    is a history that shows it, as a share of the corridor; `max_extrapolation` how far beyond the
    lengths of the baseline's windows lengths can still be matched, as a share of their mean.
    `metrics` maps names (fnmatch) to their settings, later ones win; a name beginning with
    `logged:` that has no wildcard must be there. `match_on` are the conditions at which runs are
    compared: one that the runs were meant to differ in is left out. `alone` are metrics that are
    each the one question of a comparison: judged at `alpha`, without correction for the others.
    """

    alpha: float = 0.01
    correction: Correction = "bh"
    history: int = 10
    min_windows: int = 4
    run_to_run: float = 0.2
    max_extrapolation: float = 0.1
    metrics: Mapping[str, MetricSettings] = field(default_factory=dict)
    acknowledged: tuple[Acknowledged, ...] = ()
    match_on: tuple[str, ...] = CONDITIONS
    alone: tuple[str, ...] = ()

    def of(self, name: str, default: MetricSettings) -> MetricSettings:
        """Return the settings of one metric, `default` where the file is silent."""
        merged = dict(vars(default))
        for pattern, given in self.metrics.items():
            if fnmatchcase(name, pattern):
                merged |= {k: v for k, v in vars(given).items() if v is not None}
        return MetricSettings(**merged)
