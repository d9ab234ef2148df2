"""Figures that a benchmark printed, as an observation: one number each, no windows.

A file is what `benchmarks/*.py --json` prints: `benchmark` (its name), `figures` (a list of `name`,
`value`, `unit`, and `at_most` or `at_least`), and `yardstick_s`, the seconds that a fixed piece of
work took in the same process. An absolute time says as much about the machine as about the
program, so times and rates are taken per yardstick: a ratio within one run. What cannot be
(no yardstick) is kept and does not gate.

Worked example: 300 ns beside a yardstick of 0.1 s is 3e-6 yardsticks; a machine of half the
speed finds 600 ns beside 0.2 s, the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlinsight.analyzers.gate.observation import Better, Observation, Scalar

#: Units of time, in seconds, and whether a figure is a time or a rate.
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
YARDSTICKS: Final = "yardsticks"


def is_figures(document: Any) -> bool:
    """Return whether a JSON document is a file of figures."""
    return isinstance(document, Mapping) and {"benchmark", "figures"} <= document.keys()


def figures_observation(
    documents: Sequence[Mapping[str, Any]], recorded_ns: int | None = None
) -> Observation:
    """Return the observation of the figures of one or more benchmarks.

    Their identity is that they are figures: hardware is cancelled out, or does not gate.
    Raises ValueError, in one sentence, for a document that is no file of figures.
    """
    scalars: dict[str, Scalar] = {}
    for document in documents:
        if not is_figures(document):
            raise ValueError("expected the keys `benchmark` and `figures`")
        for figure in document["figures"]:
            try:
                name = f"{document['benchmark']}: {figure['name']}"
                scalars[name] = _scalar(figure, document.get("yardstick_s"))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"expected figures with name, value and unit: {error!r}"
                ) from error
    return Observation(
        source="figures",
        run_id=None,
        recorded_ns=recorded_ns,
        identity={"kind": "figures"},
        scalars=scalars,
    )


def _scalar(figure: Mapping[str, Any], yardstick_s: float | None) -> Scalar:
    value, unit = figure["value"], str(figure["unit"])
    number = None if value is None else float(value)
    better, gates = _better(figure)
    over, _, per = unit.partition("/")
    if unit in _SECONDS:
        if number is None or not yardstick_s:
            return Scalar(number, unit, better, gates and bool(yardstick_s))
        return Scalar(number * _SECONDS[unit] / yardstick_s, YARDSTICKS, better, gates)
    if per in _SECONDS:
        if number is None or not yardstick_s:
            return Scalar(number, unit, better, gates and bool(yardstick_s))
        rate = number / _SECONDS[per] * yardstick_s
        return Scalar(rate, f"{over}/yardstick", better, gates)
    return Scalar(number, unit, better, gates)


def _better(figure: Mapping[str, Any]) -> tuple[Better, bool]:
    """A figure with a bound gates, away from it is better; one without is only watched."""
    if figure.get("at_most") is not None:
        return "lower", True
    if figure.get("at_least") is not None:
        return "higher", True
    return "either", False
