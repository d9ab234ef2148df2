"""What a question may ask of the simulator, so that it ends in reasonable time and memory.

Time is counted in steps of 2 to 15 us on one core: one for each response that is started or, at
a weight sync, started again; a part of one for each replica that a prompt is offered to; one for
each look of a poll or monitor while nothing else happens. The count is an upper bound of what
the scheduler can do (quotas are used up, and all that runs is aborted at every sync) except for
the looks, which `World` counts as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Final

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.pace import update_seconds
from rlinsight.errors import ConfigError

#: Steps of one question, over all its settings and seeds: one to five minutes on one core.
STEPS: Final = 20_000_000
#: The same where somebody waits for a page.
PAGE_STEPS: Final = 5_000_000
#: Settings of one sweep.
POINTS: Final = 1_000
#: Responses that wait or run at once: some 100 MB.
IN_FLIGHT: Final = 2_000_000
REPLICAS: Final = 10_000
SLOTS: Final = 1_000_000
#: What offering a prompt to one more replica costs, in steps.
_OFFER: Final = 0.06

_AHEAD: Final = {
    "fully_async": "`mini_batch`, `require_batches`, `sync_step`, `staleness_threshold`, "
    "`concurrent_samples` or `group_size`",
    "sync": "`train_batch` or `group_size`",
}
_AHEAD_V1: Final = "`train_batch`, `warm_up_batches` or `group_size`"


@dataclass(frozen=True)
class Size:
    """How large one simulated run is at most. `in_flight` counts responses, at once."""

    replicas: int
    in_flight: float
    steps: float


def size_of(calibration: Calibration, knobs: Knobs, versions: int) -> Size:
    """Return the size of one run of so many versions.

    Worked example: sync, 10 versions of 8 prompts x 4 responses on 2 replicas: 32 responses at
    once; 11 x 32 responses started, 10 x 32 started again, 88 prompts offered twice: 683 steps.
    """
    replicas = knobs.hybrid_replicas + knobs.standalone_replicas
    batch = float(knobs.update_prompts) * knobs.sync_step
    ahead = _ahead(knobs)
    running = ahead
    if knobs.mode == "fully_async":
        running = min(float(replicas) * knobs.concurrent_samples, ahead)
    prompts = versions * batch + ahead
    responses = (prompts + versions * running) * knobs.group_size
    steps = responses + _OFFER * replicas * prompts
    steps += _validating(calibration, knobs, versions) + _looks(calibration, knobs, versions)
    return Size(replicas, running * knobs.group_size, steps)


def check_size(
    calibration: Calibration,
    settings: Sequence[Knobs],
    *,
    seeds: int,
    versions: Sequence[int],
    limit: int = STEPS,
) -> None:
    """Raise ConfigError where `settings`, `versions` of each, are too large to simulate."""
    sizes = [size_of(calibration, *one) for one in zip(settings, versions, strict=True)]
    for knobs, size in zip(settings, sizes, strict=True):
        _check_one(knobs, size)
    steps = seeds * sum(size.steps for size in sizes)
    if steps > limit:
        raise ConfigError(
            f"expected a question of at most {limit:,} simulation steps, found {_count(steps)} "
            f"({_count(len(settings))} settings x {_count(seeds)} seeds x up to "
            f"{_count(max(versions))} versions); ask `rlinsight whatif` for fewer `--seeds`, "
            "`--versions` or values, or for a smaller setting"
        )


def check_points(points: int) -> None:
    """Raise ConfigError for a sweep of too many settings."""
    if points > POINTS:
        raise ConfigError(
            f"expected a sweep of at most {POINTS:,} settings, found {_count(points)}; "
            "give fewer values, or sweep fewer knobs at once"
        )


def _check_one(knobs: Knobs, size: Size) -> None:
    bounds: tuple[tuple[str, float, int, str], ...] = (
        ("replicas", size.replicas, REPLICAS,
         "`trainer_devices` or `rollout_devices`, or raise `tensor_parallel`"),
        ("responses of a replica at once", knobs.max_num_seqs, SLOTS, "`max_num_seqs`"),
        ("responses at once", size.in_flight, IN_FLIGHT, _AHEAD.get(knobs.mode, _AHEAD_V1)),
    )  # fmt: skip
    for what, found, most, lower in bounds:
        if found > most:
            raise ConfigError(
                f"expected at most {most:,} {what} to simulate, found {_count(found)}; "
                f"lower {lower}"
            )


def _ahead(knobs: Knobs) -> float:
    """Return how many prompts may be in the system at once."""
    if knobs.mode == "fully_async":
        return float(knobs.update_prompts) * (knobs.staleness_threshold + 1) * knobs.sync_step
    submitted = 0 if knobs.mode == "sync" else max(0, floor(knobs.warm_up_batches))
    return float(1 + submitted) * knobs.train_batch


def _validating(calibration: Calibration, knobs: Knobs, versions: int) -> float:
    if not knobs.validation_interval:
        return 0.0
    again = knobs.validation_samples / calibration.knobs.validation_samples
    each = float(calibration.costs.validation_requests) * again
    return versions / abs(knobs.validation_interval) * each


def _looks(calibration: Calibration, knobs: Knobs, versions: int) -> float:
    """Return how often the monitor of fully_async looks while the trainer trains."""
    monitor_s = calibration.costs.monitor_s
    if knobs.mode != "fully_async" or monitor_s <= 0:
        return 0.0
    mean = min(calibration.lengths.mean * knobs.length_scale, knobs.max_response_length)
    tokens = (mean + calibration.prompt_tokens) * knobs.group_size * knobs.update_prompts
    return versions * knobs.sync_step * update_seconds(calibration, knobs, tokens) / monitor_s


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e15 else f"{number:.3g}"
