"""A recorded run as the rules see it: its report, its configuration, and what-if questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlinsight.analyzers.advise.finding import Aim, Evidence, Proposal, Unit
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.simulate import Calibration, Effect, Knobs, predict_change
from rlinsight.analyzers.simulate.overrides import (
    override,
    pool_overrides,
    train_batch_override,
)
from rlinsight.errors import RlinsightError
from rlinsight.trace.topology import Topology

#: A change whose predicted gain is smaller is not worth an experiment.
WORTH_TRYING: Final = 0.03
#: Fresher samples are worth one from this relative fall of the mean lag on, and free up to this
#: loss of throughput.
FRESHER: Final = 0.25
FREE: Final = 0.01
#: Why a rule that needs a prediction proposes nothing where the trace allows no calibration.
NOT_CALIBRATED: Final = "not predicted: the trace allows no calibration"
_SHOWN: Final = 3
#: Knobs that are numbers of devices.
_POOLS: Final = {
    "trainer_devices": "trainer_devices",
    "rollout_devices": "rollout_devices",
    "rollout_replicas": "rollout_devices",
}


@dataclass
class Case:
    """`calibration` is None where the trace does not allow one: then nothing is predicted.

    `topology` tells on which nodes the replicas are, where it is known. `wall_clock` makes
    wall-clock throughput the objective, else it is throughput per device.
    """

    report: Report
    config: Mapping[str, Any]
    calibration: Calibration | None
    wall_clock: bool = False
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    topology: Topology | None = None
    _asked: dict[str, Effect | None] = field(default_factory=dict)

    @property
    def knobs(self) -> Knobs | None:
        """Return the run's own setting, None without a calibration."""
        return None if self.calibration is None else self.calibration.knobs

    def mode(self) -> str | None:
        """Return the run's mode."""
        return self.report.run.mode

    @property
    def emulated(self) -> bool:
        """Whether devices are emulated: they have no memory, and a sync takes what is stated."""
        return self.report.run.device_kinds == ("emulated",)

    def effect(self, changes: Mapping[str, object]) -> Effect | None:
        """Return the predicted effect of `changes`; None where they cannot be simulated."""
        key = repr(sorted(changes.items()))
        if key not in self._asked:
            self._asked[key] = self._predicted(changes)
        return self._asked[key]

    def _predicted(self, changes: Mapping[str, object]) -> Effect | None:
        if self.calibration is None:
            return None
        try:
            self.overrides(changes)
            return predict_change(self.calibration, changes, seeds=self.seeds)
        except RlinsightError:  # verl would refuse it, or wait for room on the nodes for ever
            return None

    def gain(self, effect: Effect | None) -> float | None:
        """Return the relative gain of the objective."""
        if effect is None:
            return None
        return (effect.tokens_per_s if self.wall_clock else effect.tokens_per_s_per_device).value

    def worth_it(self, effect: Effect | None) -> bool:
        """Whether a predicted gain is large enough, and its interval says that it is one.

        A gain whose noise is not known, as of a single seed, is none.
        """
        if effect is None:
            return False
        change = effect.tokens_per_s if self.wall_clock else effect.tokens_per_s_per_device
        if change.value is None or change.value < WORTH_TRYING:
            return False
        return change.low is not None and change.low > 0

    def fresher(self, effect: Effect | None) -> bool:
        """Whether samples are predicted to be fresher by a quarter, at no cost in throughput."""
        if effect is None:
            return False
        before, after = (one.mean_lag_versions.value for one in (effect.before, effect.after))
        gain = self.gain(effect)
        if before is None or after is None or gain is None:
            return False
        return before > 0 and after <= (1 - FRESHER) * before and gain > -FREE

    def serves(self, aim: Aim, effect: Effect) -> bool:
        """Whether an effect is predicted to be what a change is for."""
        return self.worth_it(effect) if aim == "throughput" else self.fresher(effect)

    def no_gain(self, effect: Effect | None) -> str:
        """Return what is predicted instead of a gain, to follow the name of a change."""
        if effect is None:
            return "cannot be predicted"
        change = effect.tokens_per_s if self.wall_clock else effect.tokens_per_s_per_device
        if change.value is None:
            return "cannot be predicted"
        if change.value < -WORTH_TRYING:
            return f"is predicted to cost {-change.value:.1%}"
        span = (
            ""
            if change.low is None or change.high is None
            else (f", 95 % interval {change.low:+.1%} to {change.high:+.1%}")
        )
        return f"is predicted to gain nothing ({change.value:+.1%}{span})"

    def best(self, options: Sequence[Mapping[str, object]]) -> Effect | None:
        """Return the effect with the largest gain, None where none is worth an experiment."""
        found = [effect for option in options if (effect := self.effect(option)) is not None]
        good = [effect for effect in found if self.worth_it(effect)]
        return max(good, key=lambda effect: self.gain(effect) or 0.0, default=None)

    def half_the_syncs(self) -> dict[str, object] | None:
        """Return the change to half as many weight syncs, validating no less often than before.

        Validations count versions, which then are twice as long: every 5 become every 2. None where
        each version is validated: validations would be halved with the syncs, and what they took
        would pass for the gain of the change.
        """
        assert self.knobs is not None
        changes: dict[str, object] = {"sync_step": 2 * self.knobs.sync_step}
        if (every := self.knobs.validation_interval) is not None:
            if every < 2:
                return None
            changes["validation_interval"] = every // 2
        return changes

    def twice_the_syncs(self) -> dict[str, object]:
        """Return the change to twice as many weight syncs, validating as often as before."""
        assert self.knobs is not None
        changes: dict[str, object] = {"sync_step": self.knobs.sync_step // 2}
        if (every := self.knobs.validation_interval) is not None:
            changes["validation_interval"] = 2 * every
        return changes

    def propose(self, says: str, evidence: Sequence[Evidence], effect: Effect) -> Proposal:
        """Return a proposal of the changes that an effect was predicted for."""
        return Proposal(
            says, tuple(evidence), effect.changes, self.overrides(effect.changes), effect
        )

    def overrides(self, changes: Mapping[str, object]) -> tuple[str, ...]:
        """Return the exact overrides of verl that make these changes of knobs.

        Raises ConfigError where the nodes of the run have no room for the devices.
        """
        assert self.knobs is not None
        mode, after = self.knobs.mode, self.knobs.changed(changes)
        pools = {_POOLS[name]: getattr(after, _POOLS[name]) for name in changes if name in _POOLS}
        others = [override(mode, name, value)
                  for name, value in changes.items() if name not in _POOLS]  # fmt: skip
        return (
            *(pool_overrides(mode, pools, self.config) if pools else ()),
            *(text for text in others if text is not None),
            *train_batch_override(after, changes.keys()),
        )

    def idle(self, pool: str) -> float | None:
        """Return the idle ratio of a pool (trainer, rollouter), None where there is none."""
        found = self.report.pools.get(pool)
        return None if found is None else found.idle_ratio

    def bubble(self, owner: str, *causes: str) -> float:
        """Return the share of the owner's device time that bubbles of these causes take."""
        totals = self.report.bubbles.totals
        return sum(t.share for t in totals if t.owner == owner and t.cause in causes)

    def state(self, pool: str, state: str) -> float:
        """Return the share of a pool's device time in one state of the ledger."""
        found = self.report.pools.get(pool)
        if found is None or not found.device_seconds:
            return 0.0
        return found.ledger.get(state, 0.0) / found.device_seconds

    def shown(
        self,
        what: str,
        value: float,
        unit: Unit = "ratio",
        *,
        owner: str = "",
        causes: Sequence[str] = (),
        whole_run: bool = False,
    ) -> Evidence:
        """Return a figure with the largest bubbles that show it, or with the report's window.

        `whole_run`: the figure is of the whole recording, not of the report's window.
        """
        run = self.report.run
        if whole_run and run.duration_s is not None:
            return Evidence(what, value, unit, ((0.0, run.duration_s),))
        largest = self.report.bubbles.largest
        spans = [(b.start_ns, b.end_ns) for b in largest if b.owner == owner and b.cause in causes][
            :_SHOWN
        ]
        window = self.report.window
        spans = spans or [(window.start_ns, window.end_ns)]
        zero = run.started_ns or window.start_ns
        times = tuple(((start - zero) / 1e9, (end - zero) / 1e9) for start, end in sorted(spans))
        return Evidence(what, value, unit, times)
