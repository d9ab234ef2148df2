"""The metrics of a baseline over time, for drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlinsight.analyzers.gate.comparison import own_margin
from rlinsight.analyzers.gate.identity import identity_key
from rlinsight.analyzers.gate.metrics import Metric, metrics
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import CheckResult
from rlinsight.analyzers.gate.settings import LOGGED, Settings

State = Literal["trusted", "untrusted", "checked", "failed"]


@dataclass(frozen=True)
class TrendPoint:
    """A metric of one run, with the 95 % interval over its windows; None is unknown."""

    run: str
    recorded_ns: int | None
    value: float | None
    low: float | None
    high: float | None
    state: State


@dataclass(frozen=True)
class Trend:
    """A metric over runs of one identity, the earliest first.

    `reference` and `corridor` are those of the trusted runs, as measured: not at equal length.
    """

    key: str
    group: str
    name: str
    unit: str
    reference: float | None
    corridor: float | None
    points: tuple[TrendPoint, ...]

    @property
    def short_unit(self) -> str:
        """The unit for the ticks of an axis."""
        return self.unit if self.unit in ("share", "s") else ""


@dataclass(frozen=True)
class Kept:
    """A run of the baseline, or the one under check."""

    name: str
    run: Observation
    state: State


def trends(
    runs: Sequence[Kept], settings: Settings, result: CheckResult | None = None
) -> list[Trend]:
    """Return a trend per identity and metric that gates or is asked for by name."""
    found = []
    for key in dict.fromkeys(identity_key(kept.run.identity) for kept in runs):
        mine = [kept for kept in runs if identity_key(kept.run.identity) == key]
        mine.sort(key=lambda kept: (kept.run.recorded_ns or 0, kept.name))
        found += _of_identity(key, mine, settings, result)
    return found


def _of_identity(
    key: str, runs: Sequence[Kept], settings: Settings, result: CheckResult | None
) -> list[Trend]:
    logged = [name for name in settings.metrics if name.startswith(LOGGED)]
    sheets = [metrics(kept.run, logged) for kept in runs]
    group = ", ".join(filter(None, (_describe(runs[-1].run), f"identity {key}")))
    failing = {m.name for m in result.metrics if m.fails} if result else set()
    found = []
    for name in dict.fromkeys(name for sheet in sheets for name in sheet):
        rows = [sheet.get(name) for sheet in sheets]
        first = next(metric for metric in rows if metric is not None)
        points = tuple(_point(k, m, failing) for k, m in zip(runs, rows, strict=True))
        found.append(_trend(key, group, first, points, settings))
    return found


def _trend(
    key: str, group: str, metric: Metric, points: tuple[TrendPoint, ...], settings: Settings
) -> Trend:
    chosen = settings.of(metric.name, metric.defaults)
    trusted = [p.value for p in points if p.state == "trusted" and p.value is not None]
    reference = float(np.mean(trusted[-settings.history :])) if trusted else None
    corridor = None
    if reference is not None:
        corridor = max((chosen.relative or 0.0) * abs(reference), chosen.absolute or 0.0)
    return Trend(key, group, metric.name, metric.unit, reference, corridor, points)


def _point(kept: Kept, metric: Metric | None, failing: set[str]) -> TrendPoint:
    series = metric.series if metric is not None else None
    state: State = kept.state
    if state == "checked" and metric is not None and metric.name in failing:
        state = "failed"
    value = None if series is None else series.value
    margin = None if series is None else own_margin(series)
    low, high = (
        (None, None) if value is None or margin is None else (value - margin, value + margin)
    )
    return TrendPoint(kept.name, kept.run.recorded_ns, value, low, high, state)


def _describe(run: Observation) -> str:
    parts: Mapping[str, str] = run.identity
    named = ("kind", "mode", "config.actor_rollout_ref.model.path", "hardware.trainer")
    return ", ".join(parts[name] for name in named if parts.get(name))
