"""Figures that are shown side by side without a test of their difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rlinsight.analyzers.result import Report


@dataclass(frozen=True)
class Fact:
    """A figure of each run over its own steady window; None where it is not known."""

    name: str
    unit: str
    values: tuple[float | None, ...]


Of = Callable[[Report], "float | None"]


def _tokens(report: Report) -> float | None:
    return report.tokens.wasted_share if report.tokens else None


def _reward(report: Report) -> float | None:
    return report.quality.reward.mean if report.quality.reward else None


def _validation(report: Report) -> float | None:
    return next((one.last for one in report.quality.accuracy), None)


def _kl(report: Report) -> float | None:
    return report.quality.kl.median if report.quality.kl else None


#: Name, unit (`share` is written in percent), and where it comes from.
_FACTS: Final[tuple[tuple[str, str, Of], ...]] = (
    ("lag of the first token", "versions", lambda r: r.staleness.worst_token.mean_versions),
    ("stale share", "share", lambda r: r.staleness.stale_share),
    ("coverage, measured", "share", lambda r: r.coverage.measured),
    ("wasted tokens", "share", _tokens),
    ("response length", "tokens", lambda r: r.lengths.mean),
    ("share at the cap", "share", lambda r: r.lengths.cap_share),
    ("tail cost", "device-s", lambda r: r.lengths.tail_cost_device_seconds),
    ("mean reward", "", _reward),
    ("reward volatility", "", lambda r: r.quality.reward_volatility),
    ("validation, last", "", _validation),
    ("rollout_corr/kl, median", "", _kl),
)


def facts(reports: Sequence[Report]) -> tuple[Fact, ...]:
    """Return the figures that at least one run has."""
    found = (Fact(name, unit, tuple(map(of, reports))) for name, unit, of in _FACTS)
    return tuple(fact for fact in found if any(value is not None for value in fact.values))
