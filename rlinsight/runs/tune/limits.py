"""How far a tuning may go, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """How far the loop may go; `hours` are of runs, smoke runs included, None without limit.

    `hold` are keys of the configuration that no experiment may change, `despite` rules whose
    finding is no reason to stop.
    """

    max_runs: int = 8
    hours: float | None = None
    patience: int = 3
    allow_quality_risk: bool = False
    smoke: bool = True
    hold: tuple[str, ...] = ()
    despite: tuple[str, ...] = ()

    def wider_than(self, before: Limits) -> bool:
        """Whether findings may be tried that `before` left out."""
        more_risk = self.allow_quality_risk and not before.allow_quality_risk
        return more_risk or not set(before.hold) <= set(self.hold)
