"""How fast a setting decodes and trains, from what was measured at another.

Within the recorded run nothing here is assumed. Beyond it: training time per token falls in
proportion to trainer devices, and decoding with tensor parallelism by `TP_SPEEDUP` for each
doubling; `outside.py` says so in every prediction that leans on it.
"""

from __future__ import annotations

import math
from typing import Final

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs

#: Decoding is bound by memory bandwidth, which doubles with the devices of a replica; the
#: all-reduces of every layer take part of it back.
TP_SPEEDUP: Final = 1.7


def token_times(calibration: Calibration, knobs: Knobs, factor: float = 1.0) -> list[float]:
    """Return seconds per token of one response, by how many run; index 0 is not used.

    Worked example: 10 ms + 1 ms per running response at capacity 2: 12 ms with two running.
    """
    decode = calibration.decode
    doublings = math.log2(knobs.tensor_parallel / calibration.knobs.tensor_parallel)
    scale = factor / TP_SPEEDUP**doublings
    return [
        scale * (decode.base_s + decode.per_running_s * max(1, running))
        for running in range(knobs.max_num_seqs + 1)
    ]


def micro_batches(knobs: Knobs, tokens: float) -> int:
    """Return how many micro-batches a rank makes of its share of `tokens`, 0 without a budget."""
    if knobs.token_budget is None:
        return 0
    each = tokens / knobs.trainer_devices / knobs.optimizer_steps
    return knobs.optimizer_steps * math.ceil(each / knobs.token_budget)


def update_seconds(calibration: Calibration, knobs: Knobs, tokens: float) -> float:
    """Return how long one update on `tokens` takes, before the recorded variation.

    Worked example: 1 s and 1 ms a token on one device: 1000 tokens take 2 s there, 1.5 s on two
    devices, and 4 s in two epochs.
    """
    training = calibration.training
    share = calibration.knobs.trainer_devices / knobs.trainer_devices
    epochs = knobs.ppo_epochs / calibration.knobs.ppo_epochs
    return epochs * (
        training.fixed_s * knobs.optimizer_steps
        + training.per_micro_batch_s * micro_batches(knobs, tokens)
        + training.per_token_s * tokens * share
    )
