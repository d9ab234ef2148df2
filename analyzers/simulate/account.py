"""What a simulated run did, and the figures of its steady part.

Figures mean what they mean in a report of a recorded run: device time is idle where it is
neither useful (training, generating) nor overhead (sync, switch, validation, checkpoint).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rlinsight.analyzers.simulate.world import World

TRAINER_STATES: Final = ("train", "wait", "sync", "validate", "checkpoint", "switch", "driver")


@dataclass
class Totals:
    """Sums from the start of a run to a moment, so that two of them bound a window."""

    now: float
    states: dict[str, float]
    hybrid_busy_s: float
    standalone_busy_s: float
    samples: int
    tokens: float
    lags: dict[int, int]
    dropped_tokens: float
    aborted: int


@dataclass
class Account:
    """Watches a world; the trainer says what it does, and `mark` bounds the version windows."""

    world: World
    marks: list[Totals] = field(default_factory=list)
    states: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TRAINER_STATES, 0.0))
    #: Generation that does not count as such: while trainer or rollouter are in overhead.
    hidden_hybrid_s: float = 0.0
    hidden_standalone_s: float = 0.0
    #: What inner contexts took of each open one; see `Doing`.
    inner_s: list[float] = field(default_factory=list)
    #: Overhead of the rollout pool, in replica-seconds.
    standalone_overhead_s: float = 0.0
    samples: int = 0
    tokens: float = 0.0
    #: Number of validations, and their wall time with all that is switched for them.
    validations: int = 0
    validation_s: float = 0.0
    #: (start, duration) of each training step.
    steps: list[tuple[float, float]] = field(default_factory=list)
    dropped_tokens: float = 0.0
    lags: dict[int, int] = field(default_factory=dict)

    def trained(self, groups: Sequence[int], version: int) -> float:
        """Count the groups of one update; return their tokens."""
        world = self.world
        tokens = sum(world.tokens[group] for group in groups)
        self.tokens += tokens
        self.samples += len(groups) * world.knobs.group_size
        for group in groups:
            lag = version - world.version_of[group]
            self.lags[lag] = self.lags.get(lag, 0) + 1
            del world.tokens[group], world.version_of[group]
        return tokens

    def first_validation_s(self) -> float:
        """Return what the validation that begins takes more if it is the first of a run."""
        if self.validations or not self.world.from_start:
            return 0.0
        return self.world.cost("validation_first_s")

    def mark(self) -> None:
        """Bound a version window here: a version has just gone live."""
        world = self.world
        replicas = world.replicas
        self.marks.append(
            Totals(
                now=world.now,
                states=dict(self.states),
                hybrid_busy_s=replicas.busy(world.now, world.hybrid) - self.hidden_hybrid_s,
                standalone_busy_s=replicas.busy(world.now, world.standalone)
                - self.hidden_standalone_s
                + self.standalone_overhead_s,
                samples=self.samples,
                tokens=self.tokens,
                lags=dict(self.lags),
                dropped_tokens=self.dropped_tokens,
                aborted=replicas.aborted_responses,
            )
        )


class Doing:
    """A context in which the trainer does one thing: `with Doing(account, "sync"): ...`.

    Time inside of an inner context is the inner one's. A state of None leaves the trainer's
    account alone. Generation on trainer devices beside anything but waiting and the driver's own
    time is not counted: the devices are already accounted for. `rollout_too` says the same of
    the rollout pool, whose time is then overhead as a whole.
    """

    def __init__(self, account: Account, state: str | None, *, rollout_too: bool = False) -> None:
        self._account, self._state, self._rollout_too = account, state, rollout_too

    def __enter__(self) -> None:
        world = self._account.world
        self._start = world.now
        self._hybrid = world.replicas.busy(world.now, world.hybrid)
        self._standalone = world.replicas.busy(world.now, world.standalone)
        if self._state is not None:
            self._account.inner_s.append(0.0)

    def __exit__(self, *_: object) -> None:
        account, world = self._account, self._account.world
        elapsed = world.now - self._start
        if self._state is not None:
            account.states[self._state] += elapsed - account.inner_s.pop()
            if self._state == "validate":
                account.validations += 1
                account.validation_s += elapsed
            if account.inner_s:
                account.inner_s[-1] += elapsed
            elif self._state not in ("wait", "driver"):
                busy = world.replicas.busy(world.now, world.hybrid)
                account.hidden_hybrid_s += busy - self._hybrid
        if self._rollout_too:
            busy = world.replicas.busy(world.now, world.standalone)
            account.hidden_standalone_s += busy - self._standalone
            account.standalone_overhead_s += elapsed * len(world.standalone)


@dataclass(frozen=True)
class Outcome:
    """The figures of one simulated run's steady part; None where nothing is known.

    `trainer_wait_share` and `train_share` are the shares of wall time in which the trainer waits
    for samples and trains;
    `wasted_tokens_share` is dropped / (trained + dropped).
    """

    tokens_per_s: float
    tokens_per_s_per_device: float
    samples_per_s: float
    step_s: float | None
    trainer_idle_ratio: float
    rollouter_idle_ratio: float | None
    trainer_wait_share: float
    train_share: float
    mean_lag_versions: float | None
    lag_shares: dict[int, float]
    wasted_tokens_share: float | None
    aborted_per_sample: float | None
    duration_s: float
    versions: int


def outcome(account: Account, warm_up: int) -> Outcome:
    """Return the figures between the mark after `warm_up` versions and the last one."""
    first, last = account.marks[min(warm_up, len(account.marks) - 2)], account.marks[-1]
    knobs = account.world.knobs
    seconds = last.now - first.now
    tokens, samples = last.tokens - first.tokens, last.samples - first.samples
    spent = {name: last.states[name] - first.states[name] for name in TRAINER_STATES}
    steps = [taken for start, taken in account.steps if first.now <= start < last.now]
    lags = {lag: n - first.lags.get(lag, 0) for lag, n in last.lags.items()}
    groups = sum(lags.values())
    dropped = last.dropped_tokens - first.dropped_tokens
    return Outcome(
        tokens_per_s=tokens / seconds,
        tokens_per_s_per_device=tokens / seconds / knobs.devices,
        samples_per_s=samples / seconds,
        step_s=sum(steps) / len(steps) if steps else None,
        trainer_idle_ratio=_trainer_idle(account, first, last, spent, seconds),
        rollouter_idle_ratio=_rollouter_idle(account, first, last, seconds),
        trainer_wait_share=spent["wait"] / seconds,
        train_share=spent["train"] / seconds,
        mean_lag_versions=_mean(lags),
        lag_shares={lag: n / groups for lag, n in sorted(lags.items()) if n},
        wasted_tokens_share=dropped / (tokens + dropped) if tokens + dropped else None,
        aborted_per_sample=(last.aborted - first.aborted) / samples if samples else None,
        duration_s=seconds,
        versions=len(account.marks) - 1 - warm_up,
    )


def _trainer_idle(
    account: Account, first: Totals, last: Totals, spent: dict[str, float], seconds: float
) -> float:
    """Idle: waiting or the driver's own, less what the hybrid replicas generate in it."""
    hybrid = len(account.world.hybrid)
    busy = (last.hybrid_busy_s - first.hybrid_busy_s) / hybrid if hybrid else 0.0
    return (spent["wait"] + spent["driver"] - busy) / seconds


def _rollouter_idle(account: Account, first: Totals, last: Totals, seconds: float) -> float | None:
    standalone = len(account.world.standalone)
    if not standalone:
        return None
    busy = (last.standalone_busy_s - first.standalone_busy_s) / standalone
    return 1 - busy / seconds


def _mean(counts: dict[int, int]) -> float | None:
    total = sum(counts.values())
    if not total:
        return None
    return float(np.dot(list(counts), list(counts.values())) / total)
