"""Mean staleness of fully asynchronous training in closed form, to check the simulation against.

After the published analysis of staleness in fully asynchronous RL (Applied Compute, "Predicting
and controlling staleness in fully asynchronous RL training", 2026), which finds that it depends
on utilization, batch size, queue capacity, rollout concurrency and the tail of the lengths. The
form below is derived here, from Little's law with the same quantities:

    lag = (G + Q) / B + u / k, and at most the staleness threshold

* B: prompts trained per version, in k updates. Versions go live at a rate throughput / B.
* G: prompts in flight. Little: a prompt generates for G / throughput seconds, in which G / B
  versions go live. With C responses in flight, n to a prompt, G = C / n x tail, where
  tail = E[longest of n] / E[length]: a prompt is in flight until its longest response ends. verl
  limits prompts, not responses, so there G is the limit itself.
* Q: prompts that wait in the queue beyond the batch that is being gathered add Q / B.
* u: utilization, the share of time in which the trainer trains. A prompt waits half an
  update to be gathered, and its update ends a share u of an update before the next begins;
  averaged over the k updates of a version, what these add is u / k.
* The quota: verl lets (1 + s) x B prompts into the system per version. A rollouter that uses it
  up submits each version's prompts at places s x B to (1 + s) x B of the queue, which are B long:
  the mean lag is then s, whatever the speeds.

Worked examples: B = 64 in one update, G = 64, nothing queued, a trainer that waits half of the
time: 1 + 0.5 = 1.5 versions. With the threshold at 0.5 and the quota used up: 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlinsight.analyzers.simulate.account import Outcome
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.lengths import LengthModel

_DRAWS = 2000
#: A trainer that waits for less than this share of the time does not keep the queue short.
_SATURATED = 0.05


def mean_lag(
    in_flight: float, queued: float, batch: float, utilization: float, updates: int = 1
) -> float:
    """Return the mean lag in versions where no quota binds; see the module's docstring."""
    return (in_flight + queued) / batch + utilization / updates


def groups_in_flight(responses: float, lengths: LengthModel, size: int) -> float:
    """Return the prompts in flight where `responses` responses are kept in flight.

    Worked example: 64 responses, 4 to a prompt, all equally long: 16 prompts. Where the longest
    of 4 is twice the mean: 32.
    """
    drawn = lengths.draw(np.random.default_rng(0), _DRAWS, size)
    return float(responses / size * drawn.max(axis=1).mean() / drawn.mean())


def closed_form(knobs: Knobs, runs: Sequence[Outcome]) -> float | None:
    """Return the mean lag by the closed form, at the utilization of `runs`; None elsewhere.

    Where the trainer hardly waits, the queue fills until the quota is used up.
    """
    if knobs.mode != "fully_async":
        return None
    waits = float(np.mean([one.trainer_wait_share for one in runs]))
    if waits < _SATURATED:
        return knobs.staleness_threshold
    batch = knobs.update_prompts * knobs.sync_step
    limit = knobs.standalone_replicas * knobs.concurrent_samples
    in_flight = min(limit, knobs.max_required_samples)
    utilization = float(np.mean([one.train_share for one in runs]))
    free = mean_lag(in_flight, 0.0, batch, utilization, knobs.sync_step)
    return min(free, knobs.staleness_threshold)
