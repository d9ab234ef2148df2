"""Predictions: a setting simulated over several seeds, and the effect of a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate.account import Account, Outcome, outcome
from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.closed_form import LagCheck, check_lag
from rlinsight.analyzers.simulate.estimates import figure, one_more_run
from rlinsight.analyzers.simulate.fully_async import FullyAsync
from rlinsight.analyzers.simulate.knobs import Knobs, Mode
from rlinsight.analyzers.simulate.outside import Leap, leaps, leaps_of_change, widening
from rlinsight.analyzers.simulate.rounds import versions_of, versions_of_both
from rlinsight.analyzers.simulate.separate_async import SeparateAsync
from rlinsight.analyzers.simulate.size import STEPS, check_size
from rlinsight.analyzers.simulate.v1 import ColocateAsync, Sync
from rlinsight.analyzers.simulate.world import World

SEEDS: Final = (0, 1, 2, 3, 4)

#: Versions that are simulated and left out before those that are measured (`rounds.py`).
WARM_UP: Final = 3


@dataclass(frozen=True)
class Prediction:
    """What a setting gives, with 95 % intervals over seeds; docs/simulator.md defines each.

    Intervals hold the run's own randomness, the uncertainty of the calibration, and `widened`
    (relative) for what lies beyond what was measured, which `outside` names.
    `lag_shares` are the shares of trained prompts by lag in versions. `lag_check` holds
    the mean lag against the closed form; None outside fully_async.
    """

    knobs: Knobs
    tokens_per_s_per_device: Estimate
    tokens_per_s: Estimate
    samples_per_s: Estimate
    step_s: Estimate
    trainer_idle_ratio: Estimate
    rollouter_idle_ratio: Estimate
    trainer_wait_share: Estimate
    mean_lag_versions: Estimate
    wasted_tokens_share: Estimate
    aborted_per_sample: Estimate
    lag_shares: dict[int, float]
    lag_check: LagCheck | None
    seeds: int
    versions: int
    outside: tuple[Leap, ...] = ()
    widened: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Effect:
    """What a change does: each figure's before and after, and the paired relative change.

    Relative changes are after / before - 1 of runs with the same random numbers, so that they
    are far more certain than the figures themselves. The two objectives can disagree: more
    devices raise the wall-clock throughput and may lower that per device.
    """

    changes: dict[str, object]
    before: Prediction
    after: Prediction
    tokens_per_s_per_device: Estimate
    tokens_per_s: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


Run = FullyAsync | Sync | ColocateAsync | SeparateAsync
_RUNS: Final[dict[Mode, Callable[[World], Run]]] = {
    "sync": Sync,
    "colocate_async": ColocateAsync,
    "separate_async": SeparateAsync,
    "fully_async": FullyAsync,
}


def simulate(
    calibration: Calibration,
    knobs: Knobs | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    versions: int | None = None,
    warm_up: int = WARM_UP,
    from_start: bool = False,
) -> Prediction:
    """Return what `knobs` (without them: the run's own) give on the calibrated work.

    `versions` are measured after `warm_up` more; `from_start` counts those from the start of a
    run, which holds what is done only once. Raises RlinsightError for a setting that would
    hang or is too large.
    """
    chosen = calibration.knobs if knobs is None else knobs
    measured = versions_of(calibration, chosen) if versions is None else versions
    check_size(calibration, [chosen], seeds=len(seeds), versions=[measured + warm_up])
    runs = [run(calibration, chosen, seed, measured, warm_up, from_start) for seed in seeds]
    return _prediction(calibration, chosen, runs, measured)


def simulate_run(
    calibration: Calibration, knobs: Knobs, seed: int, versions: int, *, from_start: bool = False
) -> Account:
    """Return one simulated run with all that it did, warm-up included.

    Raises RlinsightError for a setting that would hang or is too large.
    """
    check_size(calibration, [knobs], seeds=1, versions=[versions])
    world = World(calibration, knobs, seed, from_start=from_start)
    return _RUNS[knobs.mode](world).run(versions)


@lru_cache(maxsize=512)
def run(
    calibration: Calibration,
    knobs: Knobs,
    seed: int,
    versions: int,
    warm_up: int = WARM_UP,
    from_start: bool = False,
) -> Outcome:
    """Return the figures of one simulated run.

    Remembered, since every change of a run is compared with the same run as it was.
    """
    account = simulate_run(calibration, knobs, seed, versions + warm_up, from_start=from_start)
    return outcome(account, warm_up)


def predict_change(
    calibration: Calibration,
    changes: Mapping[str, object],
    *,
    seeds: Sequence[int] = SEEDS,
    versions: int | None = None,
    limit: int = STEPS,
) -> Effect:
    """Return the effect of `changes` (knobs, or overrides of verl) on the calibrated run.

    `limit` bounds the simulation steps (`size.py`). Raises RlinsightError for a setting that
    verl would refuse, that would hang, or that is too large.
    """
    after = calibration.knobs.changed(changes)
    return predict_setting(calibration, after, changes, seeds=seeds, versions=versions, limit=limit)


def predict_setting(
    calibration: Calibration,
    after: Knobs,
    changes: Mapping[str, object],
    *,
    seeds: Sequence[int] = SEEDS,
    versions: int | None = None,
    limit: int = STEPS,
) -> Effect:
    """Return the effect of another setting, which may be of another mode; `changes` names it."""
    before = calibration.knobs
    both = versions_of_both(calibration, before, after) if versions is None else (versions,) * 2
    simulated = [measured + WARM_UP for measured in both]
    check_size(calibration, [before, after], seeds=len(seeds), versions=simulated, limit=limit)
    old = [run(calibration, before, seed, both[0]) for seed in seeds]
    new = [run(calibration, after, seed, both[1]) for seed in seeds]
    wider = widening(leaps_of_change(calibration, before, after))
    ratios = {
        name: one_more_run(
            [getattr(b, name) / getattr(a, name) - 1 for a, b in zip(old, new, strict=True)],
            wider,
        )
        for name in ("tokens_per_s_per_device", "tokens_per_s")
    }
    return Effect(
        changes=dict(changes),
        before=_prediction(calibration, before, old, both[0]),
        after=_prediction(calibration, after, new, both[1]),
        **ratios,
    )


_FIGURES: Final = (
    "tokens_per_s_per_device", "tokens_per_s", "samples_per_s", "step_s", "trainer_idle_ratio",
    "rollouter_idle_ratio", "trainer_wait_share", "mean_lag_versions", "wasted_tokens_share",
    "aborted_per_sample",
)  # fmt: skip


def _prediction(
    calibration: Calibration, knobs: Knobs, runs: Sequence[Outcome], versions: int
) -> Prediction:
    found = leaps(calibration, knobs)
    wider = widening(found)
    figures = {name: figure([getattr(one, name) for one in runs], wider) for name in _FIGURES}
    lags = sorted({lag for one in runs for lag in one.lag_shares})
    return Prediction(
        knobs=knobs,
        **figures,
        lag_shares={
            lag: float(np.mean([one.lag_shares.get(lag, 0.0) for one in runs])) for lag in lags
        },
        lag_check=check_lag(knobs, runs),
        seeds=len(runs),
        versions=versions,
        outside=found,
        widened=wider,
    )
