"""A training step taken apart into phases, from durations alone.

Phases of the driver follow each other, so step = phases + residual; the residual is what no
timer covers and is never hidden or clamped (a negative one says that timers overlap). Which
side binds the run is read from the exposed wait: the share of the step in which the trainer
waits for samples. Above 30 % the rollout binds, below 5 % the trainer does, between them both
matter (`mixed`). A synchronous trainer generates and trains in turns: `pipeline`.

Worked example (NeMo-RL PR#1052): a step of 66.55 s with 32.52 s of exposed generation, 25.05 s
of training and 8.92 s in six smaller phases leaves 0.06 s; 49 % exposed: the rollout binds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Bound = Literal["trainer", "rollout", "mixed", "pipeline"]

ROLLOUT_BOUND = 0.3
TRAINER_BOUND = 0.05


@dataclass(frozen=True)
class Breakdown:
    """Mean seconds of a step. `wait_s` is the exposed wait for samples, None where unknown.

    `shares` are of the step and need not sum to 1: `residual_s` is the rest.
    """

    step_s: float
    phases: dict[str, float]
    shares: dict[str, float]
    residual_s: float
    wait_s: float | None
    wait_share: float | None
    bound: Bound | None


@dataclass(frozen=True)
class StepChange:
    """Two runs per step; only comparable where a step does the same work in both.

    `speedup` = before / after, `step_gain` = 1 - after / before, `changes_s` = after - before
    of each phase both runs have; `explained_by` is the phase whose change is nearest to the
    step's whole change.
    """

    speedup: float
    step_gain: float
    wait_removed_s: float | None
    changes_s: dict[str, float]
    explained_by: str | None


def breakdown(
    step_s: float,
    phases: Mapping[str, float],
    waits: Collection[str] | None,
    *,
    synchronous: bool = False,
) -> Breakdown:
    """Return a step of `step_s` seconds in its phases (seconds).

    `waits` names the phases in which the trainer only waits for samples; None: not known. A
    wait that is named and absent was not recorded, which is not a wait of 0 s.
    """
    known = [phases[name] for name in waits or () if name in phases]
    wait_s = sum(known) if known else None
    share = wait_s / step_s if wait_s is not None and step_s else None
    return Breakdown(
        step_s=step_s,
        phases=dict(phases),
        shares={name: s / step_s for name, s in phases.items()} if step_s else {},
        residual_s=step_s - sum(phases.values()),
        wait_s=wait_s,
        wait_share=share,
        bound="pipeline" if synchronous else bound_of(share),
    )


def bound_of(wait_share: float | None) -> Bound | None:
    """Return which side binds, from the share of the step the trainer waits for samples."""
    if wait_share is None:
        return None
    if wait_share > ROLLOUT_BOUND:
        return "rollout"
    return "trainer" if wait_share < TRAINER_BOUND else "mixed"


def change(before: Breakdown, after: Breakdown) -> StepChange:
    """Return what changed between two runs.

    Worked example (vime#358): steps of 178.3 and 104.0 s with waits of 97.2 and 4.6 s and
    training of 81.4 and 99.6 s: 1.71 times as fast; 92.6 s of waiting went, training became
    18.2 s slower.
    """
    common = [name for name in before.phases if name in after.phases]
    changes = {name: after.phases[name] - before.phases[name] for name in common}
    whole = after.step_s - before.step_s
    waits = (before.wait_s, after.wait_s)
    return StepChange(
        speedup=before.step_s / after.step_s,
        step_gain=1 - after.step_s / before.step_s,
        wait_removed_s=None if None in waits else waits[0] - waits[1],  # type: ignore[operator]
        changes_s=changes,
        explained_by=min(changes, key=lambda n: abs(changes[n] - whole)) if changes else None,
    )
