"""Runs that vary one number: how the figures of merit respond to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from rlinsight.analyzers.compare.configs import Variable
from rlinsight.analyzers.compare.plateau import Gain, Plateau, knee, plateau
from rlinsight.analyzers.gate.comparison import Comparison, compare, own_margin
from rlinsight.analyzers.gate.metrics import Series as Windows
from rlinsight.analyzers.gate.metrics import metrics, waits
from rlinsight.analyzers.gate.multiplicity import adjusted
from rlinsight.analyzers.gate.observation import Better, Observation
from rlinsight.analyzers.gate.settings import MetricSettings, Settings

#: The smallest gain that matters: of a rate relative, of a share in points.
LEAST_RATE: Final = 0.03
LEAST_SHARE: Final = 0.02

_RATE: Final = MetricSettings(LEAST_RATE, 0.0, "higher", gates=True, match_length=True)
_SHARE: Final = MetricSettings(0.0, LEAST_SHARE, "lower", gates=True, match_length=True)
#: What a curve is drawn of.
RESPONSES: Final[Mapping[str, MetricSettings]] = {
    "tokens_per_s_per_device": _RATE,
    "samples_per_s": _RATE,
    "wait.trainer": _SHARE,
    "idle.rollouter": _SHARE,
}


@dataclass(frozen=True)
class Point:
    """A setting, the runs that had it, and their value as measured, with its 95 % interval."""

    setting: float
    runs: tuple[str, ...]
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Response:
    """One metric over the settings. `least` is the smallest gain that matters, in gains' unit.

    Gains are at equal response length, of every pair of settings. `plateau` is None for a curve
    that still rises at its last setting.
    """

    metric: str
    unit: str
    better: Better
    least: float
    points: tuple[Point, ...]
    gains: tuple[Gain, ...]
    plateau: Plateau | None
    knee: float | None


@dataclass(frozen=True)
class Series:
    """A variable and the response of each metric to it."""

    variable: Variable
    responses: tuple[Response, ...]


def series(
    variable: Variable, names: Sequence[str], runs: Sequence[Observation], settings: Settings
) -> Series:
    """Return how the runs respond to what they vary; repeats of a setting are taken together.

    A metric that a run does not have in enough windows has no curve.
    """
    found = []
    for metric, chosen in RESPONSES.items():
        windows = [_windows(run, metric) for run in runs]
        if all(one is not None and len(one[0].per) >= settings.min_windows for one in windows):
            known = [one for one in windows if one is not None]
            found.append(_response(metric, known, chosen, variable, names, settings))
    return Series(variable, tuple(found))


def _windows(run: Observation, name: str) -> tuple[Windows, str] | None:
    metric = waits(run) if name == "wait.trainer" else metrics(run).get(name)
    return None if metric is None or metric.series is None else (metric.series, metric.unit)


def _response(
    metric: str,
    windows: Sequence[tuple[Windows, str]],
    chosen: MetricSettings,
    variable: Variable,
    names: Sequence[str],
    settings: Settings,
) -> Response:
    at: dict[float, list[int]] = {}
    for i, setting in enumerate(variable.values):
        at.setdefault(setting, []).append(i)
    ordered = sorted(at)
    of = {setting: [windows[i][0] for i in at[setting]] for setting in ordered}
    gains = _gains(of, chosen, settings)
    least = chosen.relative or chosen.absolute or 0.0
    points = tuple(
        _point(setting, [names[i] for i in at[setting]], of[setting]) for setting in ordered
    )
    sign = 1.0 if chosen.better == "higher" else -1.0
    flat = plateau(ordered, gains, least)
    top = flat.start if flat is not None else ordered[-1]
    return Response(
        metric=metric,
        unit=windows[0][1],
        better=chosen.better or "either",
        least=least,
        points=points,
        gains=gains,
        plateau=flat,
        knee=knee({p.setting: sign * p.value for p in points}, gains, top),
    )


def _gains(
    of: Mapping[float, Sequence[Windows]], chosen: MetricSettings, settings: Settings
) -> tuple[Gain, ...]:
    pairs = list(combinations(of, 2))
    compared = [compare(_joined(of[t]), of[s], chosen, settings) for s, t in pairs]
    p_values = adjusted([c.p_value for c in compared], settings.correction)
    return tuple(
        _gain(s, t, c, p, chosen, settings.alpha)
        for (s, t), c, p in zip(pairs, compared, p_values, strict=True)
    )


def _gain(
    before: float, after: float, c: Comparison, p: float, chosen: MetricSettings, alpha: float
) -> Gain:
    scale = 1.0 if chosen.better == "higher" else -1.0
    if chosen.relative:
        scale /= abs(c.reference)
    low, high = sorted((c.low * scale, c.high * scale))
    moved = c.outside and p < alpha
    gain = c.change * scale
    return Gain(before, after, gain, low, high, p, moved and gain > 0, moved and gain < 0)


def _point(setting: float, names: Sequence[str], runs: Sequence[Windows]) -> Point:
    together = _joined(runs)
    margin = own_margin(together)
    value = together.value
    low, high = (None, None) if margin is None else (value - margin, value + margin)
    return Point(setting, tuple(names), value, low, high)


def _joined(runs: Sequence[Windows]) -> Windows:
    """Return repeats of a setting as one run of all their windows."""
    if len(runs) == 1:
        return runs[0]
    known = set.intersection(*(set(run.conditions) for run in runs))
    return Windows(
        np.concatenate([run.amount for run in runs]),
        np.concatenate([run.per for run in runs]),
        {key: np.concatenate([run.conditions[key] for run in runs]) for key in known},
    )
