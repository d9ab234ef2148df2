"""The laws of the cost model: how long a response gets, and how long a device takes.

Everything here is a pure function of the cost model and its arguments. Times in emulated
seconds.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from rlinsight.runs.emulated.cost import Generation, Lengths, Training

_NORMAL = NormalDist()


def response_length(lengths: Lengths, seed: int, prompt: str, index: str, limit: int) -> int:
    """Return the tokens of response `index` to `prompt`, at most `limit` and the cap.

    The same for the same seed, prompt and index, whenever and wherever it is generated.
    Worked example: sigma 0 gives the median, or the limit where that is less.
    """
    common = _standard_normal(f"{seed}|{prompt}")
    own = _standard_normal(f"{seed}|{prompt}|{index}")
    share = lengths.prompt_share
    score = math.sqrt(share) * common + math.sqrt(1.0 - share) * own
    cap = limit if lengths.cap is None else min(limit, lengths.cap)
    return min(cap, _length_at(lengths, score))


def _standard_normal(text: str) -> float:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "little")).gauss(0.0, 1.0)  # noqa: S311


def _length_at(lengths: Lengths, score: float) -> int:
    if lengths.quantiles is not None:
        return max(1, round(_interpolated(lengths.quantiles, _NORMAL.cdf(score))))
    return max(1, math.ceil(lengths.median * math.exp(lengths.sigma * score)))


def _interpolated(values: Sequence[int], fraction: float) -> float:
    position = fraction * (len(values) - 1)
    below = min(int(position), len(values) - 2)
    return values[below] + (position - below) * (values[below + 1] - values[below])


@dataclass(frozen=True)
class ReplicaCost:
    """A replica's costs, brought to its own number of devices."""

    capacity: int
    kv_tokens: int
    prefill_s: float
    prefill_per_token_s: float
    step_s: float
    step_per_response_s: float

    def prefill(self, tokens: int) -> float:
        """Return how long a prompt of this many tokens takes until its first token."""
        return self.prefill_s + self.prefill_per_token_s * tokens

    def step(self, running: int) -> float:
        """Return how long a decoding step takes with this many running."""
        return self.step_s + self.step_per_response_s * running


def replica_cost(generation: Generation, devices: int, capacity: int) -> ReplicaCost:
    """Return the costs of a replica of `devices` that runs `capacity` responses at once.

    Worked example: at exponent 1, twice the devices halve each time and double the KV cache.
    """
    more = devices / generation.tensor_parallel
    faster = math.pow(more, generation.tensor_parallel_exponent)
    return ReplicaCost(
        capacity=capacity,
        kv_tokens=int(generation.kv_cache_tokens * more),
        prefill_s=generation.prefill_s / faster,
        prefill_per_token_s=generation.prefill_per_token_s / faster,
        step_s=generation.step_s / faster,
        step_per_response_s=generation.step_per_response_s / faster,
    )


@dataclass(frozen=True)
class MicroBatches:
    """How verl cuts the share of a device: by a token budget, or by sequences."""

    token_budget: int | None = None
    sequences: int | None = None

    def count(self, tokens: int, sequences: int, devices: int) -> int:
        """Return the micro-batches of a device, at least one.

        Worked example: 64 000 tokens on 4 devices under a budget of 5 000 make 4.
        """
        if self.token_budget is not None:
            return max(1, math.ceil(tokens / devices / self.token_budget))
        if self.sequences is not None:
            return max(1, math.ceil(sequences / devices / self.sequences))
        return 1


def update_seconds(training: Training, tokens: int, devices: int, micro_batches: int) -> float:
    """Return how long an update takes.

    Worked example: 1 s fixed, 0.1 s a micro-batch, 1 ms a token: 4 000 tokens on 4 devices in 2
    micro-batches take 1 + 0.2 + 1 = 2.2 s.
    """
    shared = tokens * training.device_s_per_token / math.pow(devices, training.scaling_exponent)
    return training.fixed_s + micro_batches * training.per_micro_batch_s + shared


def log_prob_seconds(training: Training, tokens: int, devices: int, micro_batches: int) -> float:
    """Return how long the log-probabilities of a batch take; there is no constant part."""
    seconds = tokens * training.log_prob_device_s_per_token
    shared = seconds / math.pow(devices, training.scaling_exponent)
    return micro_batches * training.per_micro_batch_s + shared
