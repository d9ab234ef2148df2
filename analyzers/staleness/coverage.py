"""Coverage: how much of the trainer's wait for samples the tolerated staleness removes.

Problem: staleness costs quality and buys time, but the time bought does not stand in any
metric. Measured over version window v it is 1 - W(v)/W0(v): W is the trainer's measured wait
for samples, W0 the wait had only samples generated at version >= v counted (`replay` works
it out). 0: stale samples saved nothing; 1: they saved all of the wait. The figure is not
clamped: below 0, counting fewer samples would have been faster.

Beside it the analytic figure: a staleness of s, with a weight sync every k trigger steps,
lets s*k trigger steps be fed with samples of the version before: floor(s*k) of the k in full.
With s = 0.3 and k = 8 that is 2.4, so the first two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from rlinsight.analyzers.config import setting
from rlinsight.analyzers.staleness.replay import WindowCoverage, replay_windows
from rlinsight.analyzers.staleness.trigger_steps import Trigger, trigger_steps
from rlinsight.trace.topology import Topology

Window = tuple[int, int]


@dataclass(frozen=True)
class SyncSettings:
    """How far generation may run ahead, as configured; None is not configured in this mode.

    `staleness` is a fraction of a sync cycle (0.5: half a cycle's samples may be left over
    from the version before), `sync_every` counts trigger steps per weight sync,
    `max_lag_versions` is the oldest a sample may be, in versions. The names in `sources` are
    the configuration keys that the figures came from.
    """

    staleness: float | None
    sync_every: int | None
    max_lag_versions: int | None
    sources: tuple[str, ...]


@dataclass(frozen=True)
class AnalyticCoverage:
    """What the settings can cover: `steps_covered` of `sync_every` trigger steps in full.

    `steps_ahead` is s*k as it is; a staleness above 1 reaches beyond one cycle.
    """

    staleness: float
    sync_every: int
    steps_ahead: float
    steps_covered: int
    coverage: float


@dataclass(frozen=True)
class StepPosition:
    """The n-th trigger step after a sync, over all version windows that have one.

    `covered_share` is the share of windows in which it was fed wholly with samples of older
    versions, `stale_share` the mean share of such samples; None where no version is known.
    """

    position: int
    windows: int
    covered_share: float | None
    stale_share: float | None
    mean_wait_s: float


@dataclass(frozen=True)
class Coverage:
    """Coverage per version window and over all of them, weighted by their waits.

    `measured` is 1 - sum W / sum W0 over the windows where W0 is known, which are
    `known_share` of the windows; `wait_s` and `fresh_only_wait_s` are these two sums.
    """

    measured: float | None
    wait_s: float | None
    fresh_only_wait_s: float | None
    known_share: float | None
    windows: tuple[WindowCoverage, ...]
    steps: tuple[StepPosition, ...]
    settings: SyncSettings
    analytic: AnalyticCoverage | None


def coverage(
    spans: pl.DataFrame,
    samples: pl.DataFrame,
    requests: pl.DataFrame | None = None,
    *,
    topology: Topology | None = None,
    versions: pl.DataFrame | None = None,
    window: Window | None = None,
    config: Mapping[str, Any] | None = None,
) -> Coverage:
    """Return the coverage of the version windows that lie wholly within `window`.

    `spans`, `samples` and `requests` must be those of the whole trace, since the replay looks
    beyond a version window. `versions` (of `versions.version_windows`) names the version of
    a wait whose span does not; `config` is the run's resolved configuration.
    """
    triggers, units = trigger_steps(spans, samples, requests, topology, versions)
    windows = replay_windows(_whole(triggers, window), units)
    settings = sync_settings(config or {})
    known = [w for w in windows if w.fresh_only_wait_s is not None]
    wait = sum(w.wait_s for w in known) if known else None
    fresh = sum(w.fresh_only_wait_s or 0.0 for w in known) if known else None
    return Coverage(
        measured=1 - wait / fresh if wait is not None and fresh else None,
        wait_s=wait,
        fresh_only_wait_s=fresh,
        known_share=len(known) / len(windows) if windows else None,
        windows=windows,
        steps=_positions(_whole(triggers, window)),
        settings=settings,
        analytic=analytic_coverage(settings.staleness, settings.sync_every),
    )


def analytic_coverage(staleness: float | None, sync_every: int | None) -> AnalyticCoverage | None:
    """Return what a staleness (fraction of a cycle) covers with a sync every `sync_every` steps.

    The product is taken of the decimal numbers as written, since 0.29 * 100 is below 29 in
    binary. Example: 0.3 and 8 give 2 of 8 steps, coverage 0.25.
    """
    if staleness is None or sync_every is None or sync_every < 1:
        return None
    ahead = Fraction(repr(float(staleness))) * sync_every
    covered = min(math.floor(ahead), sync_every)
    return AnalyticCoverage(
        staleness=float(staleness),
        sync_every=sync_every,
        steps_ahead=float(ahead),
        steps_covered=covered,
        coverage=covered / sync_every,
    )


def sync_settings(config: Mapping[str, Any]) -> SyncSettings:
    """Read staleness and sync interval from a resolved verl configuration of any mode.

    In the v1 modes generation runs ahead by `num_warmup_batches` training batches, each of
    which is one sync cycle, so that figure is the staleness there.
    """
    if "async_training" in config:
        staleness, default_every = "async_training.staleness_threshold", None
        every, oldest = "async_training.trigger_parameter_sync_step", None
    else:
        mode = setting(config, "trainer.v1.trainer_mode")
        staleness = f"trainer.v1.{mode}.num_warmup_batches"
        every = f"trainer.v1.{mode}.parameter_sync_step"
        oldest = None if mode == "sync" else "trainer.v1.sampler.max_off_policy_threshold"
        default_every = None if mode is None else 1  # what verl takes for a mode without the key
    keys = (key for key in (staleness, every, oldest) if key is not None)
    found = {key: _number(setting(config, key)) for key in keys}
    interval = _whole_number(found[every])
    return SyncSettings(
        staleness=found[staleness],
        sync_every=default_every if interval is None else interval,
        max_lag_versions=None if oldest is None else _whole_number(found[oldest]),
        sources=tuple(key for key, value in found.items() if value is not None),
    )


def _number(value: Any) -> float | None:
    """Return a setting as a number; None for what is none and tells nothing, such as `nan`."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole_number(number: float | None) -> int | None:
    return None if number is None else int(number)


def _whole(triggers: list[Trigger], window: Window | None) -> list[Trigger]:
    """Leave out versions of which a trigger step lies outside `window`: the rest would mislead."""
    if window is None:
        return triggers
    cut = {t.version for t in triggers if t.ready_ns < window[0] or t.end_ns > window[1]}
    return [t for t in triggers if t.version not in cut]


def _positions(triggers: list[Trigger]) -> tuple[StepPosition, ...]:
    rows = pl.DataFrame(
        [(t.position, t.wait_ns, t.stale_share) for t in triggers],
        schema={"position": pl.Int64, "wait_ns": pl.Int64, "stale": pl.Float64},
        orient="row",
    )
    by_position = rows.group_by("position").agg(
        windows=pl.len(),
        covered_share=(pl.col("stale") == 1).mean(),
        stale_share=pl.col("stale").mean(),
        mean_wait_s=pl.col("wait_ns").mean() / 1e9,
    )
    return tuple(StepPosition(**row) for row in by_position.sort("position").iter_rows(named=True))
