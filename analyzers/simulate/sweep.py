"""Many settings at once, on all cores, and which of them no other beats."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from typing import Any, Final

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.predict import (
    SEEDS,
    WARM_UP,
    Prediction,
    simulate,
)
from rlinsight.analyzers.simulate.rounds import versions_of
from rlinsight.analyzers.simulate.size import check_points, check_size
from rlinsight.errors import ConfigError, RlinsightError

#: From so many responses on, other processes are worth their start.
_WORTH_IT: Final = 300_000


@dataclass(frozen=True)
class Point:
    """One setting of a sweep; `prediction` is None where verl would refuse it or hang.

    `best` says that no other setting is better in one of throughput per device, wall-clock
    throughput and mean lag without being worse in another.
    """

    changes: dict[str, object]
    prediction: Prediction | None
    reason: str | None = None
    best: bool = False


@dataclass(frozen=True)
class Sweep:
    """The settings of a sweep, in the order asked for, beside the run as it was."""

    varied: tuple[str, ...]
    base: Prediction
    points: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def sweep(
    calibration: Calibration,
    values: Mapping[str, Sequence[object]],
    *,
    fixed: Mapping[str, object] | None = None,
    seeds: Sequence[int] = SEEDS,
    versions: int | None = None,
    processes: int | None = None,
) -> Sweep:
    """Return every combination of `values` (knob or override to its values) on top of `fixed`.

    A setting that verl would refuse, that would hang, or that is too large is kept with its
    reason. Raises ConfigError for an unknown knob, and for more than can be simulated.
    """
    from rlinsight.analyzers.simulate.overrides import knob_name

    base = calibration.knobs.changed(fixed or {})
    for name in values:
        knob_name(base.mode, name)
    check_points(prod(map(len, values.values())))
    changes = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    settings = [_knobs(calibration, base, change, versions) for change in changes]
    _check_all(calibration, settings, len(seeds), versions)
    jobs = [(calibration, one, seeds, versions) for one in settings]
    whole = simulate(calibration, seeds=seeds, versions=versions)
    points = [
        Point(change, *found) for change, found in zip(changes, _all(jobs, processes), strict=True)
    ]
    return Sweep(tuple(values), whole, tuple(_with_best(points)))


Job = tuple[Calibration, "Knobs | str", Sequence[int], "int | None"]
Found = tuple["Prediction | None", "str | None"]


def _knobs(
    calibration: Calibration, base: Knobs, change: Mapping[str, object], versions: int | None
) -> Knobs | str:
    """Return the setting of one point, or why it is not simulated."""
    try:
        knobs = base.changed(change)
        check_size(
            calibration, [knobs], seeds=1, versions=[_versions(calibration, knobs, versions)]
        )
    except ConfigError as error:
        return str(error)
    return knobs


def _check_all(
    calibration: Calibration, settings: Sequence[Knobs | str], seeds: int, versions: int | None
) -> None:
    possible = [one for one in settings if isinstance(one, Knobs)]
    if possible:
        each = [_versions(calibration, one, versions) for one in possible]
        check_size(calibration, possible, seeds=seeds, versions=each)


def _versions(calibration: Calibration, knobs: Knobs, versions: int | None) -> int:
    return WARM_UP + (versions_of(calibration, knobs) if versions is None else versions)


def _all(jobs: Sequence[Job], processes: int | None) -> list[Found]:
    cores = processes or (os.cpu_count() or 1 if _responses(jobs) > _WORTH_IT else 1)
    workers = min(cores, len(jobs))
    if workers < 2:
        return [_one(job) for job in jobs]
    found: list[Found | None] = [None] * len(jobs)
    with ThreadPoolExecutor(workers) as waiting:
        shares = [jobs[worker::workers] for worker in range(workers)]
        for worker, share in enumerate(waiting.map(_in_a_process, shares)):
            found[worker::workers] = share
    return [one for one in found if one is not None]


def _in_a_process(jobs: Sequence[Job]) -> list[Found]:
    """Run jobs in an interpreter of their own; here where that fails.

    Not a pool of `multiprocessing`: a forked child of a process with threads, which polars
    starts, may hang, and a spawned one runs the caller's script again.
    """
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    done = subprocess.run(command, input=pickle.dumps(jobs), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        return [_one(job) for job in jobs]
    found: list[Found] = pickle.loads(done.stdout)  # noqa: S301 - from our own process
    return found


def serve() -> None:
    """Run the jobs on standard input: what a process of a sweep does."""
    jobs: Sequence[Job] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    sys.stdout.buffer.write(pickle.dumps([_one(job) for job in jobs]))


def _responses(jobs: Sequence[Job]) -> int:
    """Return how many responses all jobs simulate, which is what they take time for."""
    return sum(
        knobs.update_prompts * knobs.sync_step * knobs.group_size * len(seeds)
        * (_versions(calibration, knobs, versions) - WARM_UP)
        for calibration, knobs, seeds, versions in jobs
        if isinstance(knobs, Knobs)
    )  # fmt: skip


def _one(job: Job) -> Found:
    calibration, knobs, seeds, versions = job
    if isinstance(knobs, str):
        return None, knobs
    try:
        return simulate(calibration, knobs, seeds=seeds, versions=versions), None
    except RlinsightError as error:
        return None, str(error)


def _with_best(points: Sequence[Point]) -> list[Point]:
    """Return the points, with those marked that no other dominates."""
    places = [None if p.prediction is None else _objectives(p.prediction) for p in points]
    marked = []
    for point, place in zip(points, places, strict=True):
        beaten = place is None or any(
            other is not None
            and other != place
            and all(o >= p for o, p in zip(other, place, strict=True))
            for other in places
        )
        marked.append(Point(point.changes, point.prediction, point.reason, best=not beaten))
    return marked


def _objectives(prediction: Prediction) -> tuple[float, float, float]:
    """Return throughput per device, wall-clock throughput, and minus the mean lag."""
    lag = prediction.mean_lag_versions.value
    return (
        prediction.tokens_per_s_per_device.value or 0.0,
        prediction.tokens_per_s.value or 0.0,
        -(lag or 0.0),
    )
