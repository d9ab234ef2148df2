"""Mean staleness of fully asynchronous training in closed form, to check the simulation against.

**The published form**: C. Dong, A. Goel, D. Yu, "Predicting and Controlling Staleness in Fully
Asynchronous RL Training", Applied Compute, 3 July 2026
(https://www.appliedcompute.com/research/staleness-in-fully-async-rl). With the utilization rho =
rollout throughput / training throughput, each unhindered, C responses in flight, B responses per
batch, M_tail = E[longest of a group] / E[length], and a queue that holds q batches:

    rho < 1 (rollout-bound):  C M_tail / B       + rho
    rho > 1 (train-bound):    C M_tail / (rho B) + (2 q + rho - 1) / (2 rho)

The first term is the versions that go live while a group generates (Little's law: C M_tail / B
groups are in flight for each group of a batch), the second those while it waits. It assumes that
an update trains one batch and makes one version, that weights take no time and reach requests in
flight, that rollouts never pause, and that a full queue drops its oldest group.

**What verl does otherwise.** It limits prompts in flight, G, not responses, so that C M_tail / B is
G over the prompts of a batch. A version may have k updates: B is then the prompts of all of them,
and a prompt waits for one of k, which makes the second term rho / k. And rollouts do pause: verl
lets (1 + s) x B prompts into the system per version. A rollouter that uses this up submits each
version's prompts at places s x B to (1 + s) x B of the queue, which are B long: the mean lag is
then s, whatever the speeds. A train-bound run always gets there, so that the second branch never
applies to verl's scheduling; tests hold the simulator's replicas and clock against it in the
published setting itself.

Worked examples (of the publication): C = 120, B = 240, rho = 0.63, M_tail = 1.42: 1.34 versions,
measured 1.26. C = 128 = B, rho = 1.07, q = 2, M_tail = 1.44: 3.25, measured 3.09.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlinsight.analyzers.simulate.account import Outcome
from rlinsight.analyzers.simulate.knobs import Knobs

Regime = Literal["rollout-bound", "quota-bound", "train-bound"]

#: A trainer that waits for less than this share of the time does not keep the queue short.
_SATURATED = 0.05


@dataclass(frozen=True)
class LagCheck:
    """The simulated mean lag beside the closed form, both in versions.

    `published` is the published form where its assumptions hold, else None and `broken` says
    which do not. `expected` is the form with verl's quota and updates per version, the same number
    where both apply. `difference` is simulated - expected. `utilization` is the trainer's,
    `in_flight` and `batch` count prompts, `queue_batches` is what the queue holds at most.
    """

    regime: Regime
    expected: float
    published: float | None
    simulated: float | None
    difference: float | None
    utilization: float
    in_flight: float
    batch: float
    queue_batches: float
    broken: tuple[str, ...]


def published_lag(
    in_flight: float, batch: float, utilization: float, queue_batches: float
) -> float:
    """Return the mean lag in versions by the published form; see the module's docstring.

    `in_flight` is C M_tail, in the unit of `batch`: responses, or prompts of a fixed size.
    """
    if utilization < 1:
        return in_flight / batch + utilization
    waiting = (2 * queue_batches + utilization - 1) / (2 * utilization)
    return in_flight / (utilization * batch) + waiting


def check_lag(knobs: Knobs, runs: Sequence[Outcome]) -> LagCheck | None:
    """Return the mean lag of `runs` beside the closed form at their utilization; None elsewhere."""
    if knobs.mode != "fully_async":
        return None
    batch = knobs.update_prompts * knobs.sync_step
    limit = knobs.standalone_replicas * knobs.concurrent_samples
    in_flight = min(limit, knobs.max_required_samples)
    utilization = float(np.mean([one.train_share for one in runs]))
    queue = knobs.max_required_samples / batch
    free = in_flight / batch + utilization / knobs.sync_step
    regime = _regime(knobs, free, float(np.mean([one.trainer_wait_share for one in runs])))
    expected = free if regime == "rollout-bound" else knobs.staleness_threshold
    broken = _broken(knobs, regime)
    lags = [one.mean_lag_versions for one in runs if one.mean_lag_versions is not None]
    simulated = float(np.mean(lags)) if lags else None
    return LagCheck(
        regime=regime,
        expected=expected,
        published=None if broken else published_lag(in_flight, batch, utilization, queue),
        simulated=simulated,
        difference=None if simulated is None else simulated - expected,
        utilization=utilization,
        in_flight=float(in_flight),
        batch=float(batch),
        queue_batches=queue,
        broken=broken,
    )


def _regime(knobs: Knobs, free: float, waits: float) -> Regime:
    """Where the trainer hardly waits, the queue fills until the quota is used up."""
    if waits < _SATURATED:
        return "train-bound"
    return "rollout-bound" if free <= knobs.staleness_threshold else "quota-bound"


def _broken(knobs: Knobs, regime: Regime) -> tuple[str, ...]:
    """Return which assumptions of the published form do not hold."""
    found = []
    if knobs.sync_step > 1:
        found.append(f"a version has {knobs.sync_step} updates, not one")
    if regime != "rollout-bound":
        found.append("rollouts pause at the staleness quota, and nothing is dropped")
    if not knobs.partial_rollout:
        found.append("a sync ends the requests in flight")
    return tuple(found)
