"""Names that a configuration or an option gives, and that nobody has: misspelt, most likely.

A misspelt name is no small thing: the metric that was meant keeps its default, and the check
passes where it was asked to fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from rlinsight.analyzers.device_time.states import BUBBLES, cause_of
from rlinsight.analyzers.gate.identity import POSSIBLE
from rlinsight.analyzers.gate.metrics import metrics
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.settings import LOGGED, Settings
from rlinsight.errors import did_you_mean

_POOLS: Final = ("trainer", "rollouter")
_CAUSES: Final = (*map(cause_of, BUBBLES), "unknown")

#: Metrics of traces, which a run need not have: a bubble may have come and gone.
KNOWN: Final = (
    "tokens_per_s_per_device", "samples_per_s", "step_time_s", "weight_sync_s", "lag_versions",
    "recording_overhead",
    *(f"idle.{pool}" for pool in _POOLS),
    *(f"bubble.{pool}.{cause}" for pool in _POOLS for cause in _CAUSES),
)  # fmt: skip


def unknown_metrics(
    new: Observation, history: Iterable[Observation], settings: Settings
) -> list[str]:
    """Return a sentence for each name or pattern of `settings.metrics` that fits no metric.

    The figures of benchmarks have names of their own, and not every benchmark runs each time: a
    pattern need not fit one.
    """
    known = dict.fromkeys(KNOWN)
    for run in (new, *history):
        known |= dict.fromkeys(metrics(run))
        known |= dict.fromkeys(LOGGED + key for key in (*run.logged, *run.not_finite))
    return [
        f"`{name}` of the configuration is no metric of this run or its history"
        f"{did_you_mean(name, known)}"
        for name in _fitting_none(settings.metrics, known)
        if new.source == "trace" or not set(name) & set("*?[")
    ]


def unknown_keys(ignore: Sequence[str], identities: Iterable[Iterable[str]]) -> list[str]:
    """Return a sentence for each key or pattern of `ignore` that fits no key of an identity."""
    known = dict.fromkeys(POSSIBLE)
    for identity in identities:
        known |= dict.fromkeys(identity)
    return [
        f"`--ignore {name}` is no key of the identity of this run or an accepted one"
        f"{did_you_mean(name, known)}"
        for name in _fitting_none(ignore, known)
    ]


def _fitting_none(patterns: Iterable[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    return [p for p in patterns if not any(n == p or fnmatchcase(n, p) for n in names)]
