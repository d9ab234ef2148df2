"""The training engine of emulated runs (`actor.strategy: emulated`): one process for all devices.

An update begins when the device would have: as soon as the last one, or the last weight sync,
had ended and its batch was there. What verl's control plane spends in between is real time and
would otherwise count several times over in emulated time; so it is made up for here, and ends
an update late only where it takes longer than the update itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
from verl.workers.engine.base import BaseEngine, EngineRegistry

from rlinsight.collectors.verl.rank import rank
from rlinsight.runs.emulated import laws
from rlinsight.runs.emulated.batch_clock import READY, could_begin
from rlinsight.runs.emulated.setup import setup
from rlinsight.runs.emulated.topology import declare_trainer
from rlinsight.trace.recorder import current
from rlinsight.trace.run_clock import CLOCK

BACKEND: Final = "emulated"
#: How much later than it should have an update ended (emulated s).
LATE: Final = "emulated_update_late_s"


@EngineRegistry.register(model_type="language_model", backend=BACKEND, device=["cpu", "cuda"])
class EmulatedEngine(BaseEngine):  # type: ignore[misc]
    """Takes the time of an update and learns nothing."""

    def __init__(self, *_: Any, engine_config: Any = None, **__: Any) -> None:
        self.engine_config = engine_config
        self.module = torch.nn.Module()
        self.mode: str | None = None
        self._free_ns = 0

    @property
    def is_param_offload_enabled(self) -> bool:
        return False

    @property
    def is_optimizer_offload_enabled(self) -> bool:
        return False

    def initialize(self) -> None:
        """Declare the devices for which this process stands."""
        declare_trainer()

    # -- work --------------------------------------------------------------------------

    def train_batch(self, data: Any, loss_function: Any = None) -> dict[str, Any]:
        """Spend the time of one mini-batch."""
        del loss_function
        tokens, sequences = _size(data)
        training, devices = setup().cost.training, setup().trainer.devices
        cut = laws.MicroBatches(*self._cut(infer=False))
        count = cut.count(tokens, sequences, devices)
        self._describe(tokens, sequences, count, devices)
        self._spend(laws.update_seconds(training, tokens, devices, count), _ready(data))
        metrics = {"pg_loss": 0.0, "ppo_kl": 0.0, "pg_clipfrac": 0.0, "grad_norm": 0.0}
        return {"model_output": {}, "loss": [0.0], "metrics": metrics}

    def infer_batch(self, data: Any, loss_function: Any = None) -> dict[str, Any]:
        """Spend the time of log-probabilities, and return some."""
        del loss_function
        tokens, sequences = _size(data)
        training, devices = setup().cost.training, setup().trainer.devices
        count = laws.MicroBatches(*self._cut(infer=True)).count(tokens, sequences, devices)
        self._describe(tokens, sequences, count, devices)
        self._spend(laws.log_prob_seconds(training, tokens, devices, count), _ready(data))
        ids = data["input_ids"]
        output = {"log_probs": _like(ids, -1.0), "entropy": _like(ids, 1.0)}
        return {"model_output": output, "loss": [0.0], "metrics": {}}

    def _cut(self, *, infer: bool) -> tuple[int | None, int | None]:
        config, prefix = self.engine_config, "infer_" if infer else ""
        if config.use_dynamic_bsz:
            return getattr(config, f"{prefix}max_token_len_per_gpu"), None
        return None, getattr(config, f"{prefix}micro_batch_size_per_gpu")

    def _describe(self, tokens: int, sequences: int, count: int, devices: int) -> None:
        """Tell the hook around this call what a device's micro-batches were."""
        if rank.jobs:
            job = rank.jobs[-1]
            job.sequences += max(1, round(sequences / devices))
            job.micro_tokens += [round(tokens / devices / count)] * count

    def _spend(self, seconds: float, ready_ns: int | None) -> None:
        """Be busy until the device would be done."""
        start_ns = could_begin(CLOCK.now_ns(), ready_ns, self._free_ns)
        self._begin_span_at(start_ns)
        end_ns = start_ns + round(seconds * 1e9)
        late_ns = CLOCK.now_ns() - end_ns
        if late_ns < 0:
            time.sleep(-late_ns / 1e9 * CLOCK.scale)
        self._record_lateness(end_ns, seconds)
        self._free_ns = end_ns

    def _begin_span_at(self, start_ns: int) -> None:
        """Let the span of this call begin when the device did, not when verl asked for it."""
        if rank.jobs:
            span = rank.jobs[-1].span
            span.start_ns = min(span.start_ns, max(start_ns, rank.ended_ns))

    def _record_lateness(self, end_ns: int, seconds: float) -> None:
        writer = current()
        if writer is not None and seconds > 0:
            late_s = (CLOCK.now_ns() - end_ns) / 1e9
            writer.counter(LATE, late_s, lane=rank.lane)

    # -- what verl asks of any engine --------------------------------------------------

    @contextmanager
    def _in(self, mode: str) -> Iterator[None]:
        self.mode = mode
        yield
        self.mode = None

    def train_mode(self, **_: Any) -> AbstractContextManager[None]:
        return self._in("train")

    def eval_mode(self, **_: Any) -> AbstractContextManager[None]:
        return self._in("eval")

    def optimizer_zero_grad(self) -> None:
        """There is no gradient."""

    def optimizer_step(self) -> float:
        return 0.0

    def lr_scheduler_step(self) -> float:
        return 0.0

    def get_data_parallel_size(self) -> int:
        return 1

    def get_data_parallel_rank(self) -> int:
        return 0

    def get_data_parallel_group(self) -> None:
        return None

    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    def to(self, *_: Any, **__: Any) -> None:
        """Weights are nowhere."""

    def get_per_tensor_param(self, **_: Any) -> tuple[Iterator[Any], None]:
        """Return no weights; the rollout takes the time of a sync."""
        return iter(()), None

    def save_checkpoint(self, *_: Any, **__: Any) -> None:
        """Spend the time of a checkpoint."""
        self._spend(setup().cost.transfers.checkpoint_s, None)

    def load_checkpoint(self, *_: Any, **__: Any) -> None:
        """There is nothing to load."""


def _size(data: Any) -> tuple[int, int]:
    """Return tokens and sequences of a batch."""
    offsets = data["input_ids"].offsets()
    return int(offsets[-1]), len(offsets) - 1


def _ready(data: Any) -> int | None:
    if READY not in data.keys():  # noqa: SIM118 - a TensorDict has no `in`
        return None
    value = data[READY]
    return int(getattr(value, "data", value))


def _like(ids: Any, value: float) -> torch.Tensor:
    filled = torch.full((ids.values().shape[0],), value)
    return torch.nested.nested_tensor_from_jagged(filled, ids.offsets())
