"""The JSON form of a report: plain values under the keys that scripts build on."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report


def document(report: Report) -> dict[str, Any]:
    """Return `report` as plain JSON values; what is unknown, or no finite number, is null.

    Large parts are restated under short keys: `alarm` is the most urgent alarm or null,
    `bubbles` the list of the largest, `staleness` joins lags, fates, tokens and coverage.
    """
    plain = {
        part.name: plain_value(getattr(report, part.name))
        for part in fields(report)
        if part.name != "segments"
    }
    found = plain.pop("bubbles")
    alarms = plain["liveness"]["alarms"]
    return plain | {
        "alarm": alarms[0] if alarms else None,
        "bubbles": found["largest"],
        "bubble_totals": found["totals"],
        "mini_batch_s": found["mini_batch_s"],
        "staleness": _staleness(plain, report),
    }


def plain_value(value: Any) -> Any:
    """Return a result object as dicts, lists and scalars, with string keys."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain_value(getattr(value, name)) for name in _names(type(value))}
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _staleness(plain: dict[str, Any], report: Report) -> dict[str, Any]:
    lags, tokens, covered = report.staleness, report.tokens, report.coverage
    known: dict[str, Any] = plain["staleness"]
    return known | {
        "lag_histogram": known["worst_token"]["counts"],
        "dropped_share": lags.fates.dropped_share,
        "wasted_tokens": tokens.wasted_tokens if tokens else None,
        "wasted_share": tokens.wasted_share if tokens else None,
        "coverage_measured": covered.measured,
        "coverage_analytic": covered.analytic.coverage if covered.analytic else None,
    }
