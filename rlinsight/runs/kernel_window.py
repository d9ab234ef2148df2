"""Kernel-level windows: verl's own profiler for a few steps, bounded, then read into the trace."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rlinsight.runs.config import KernelWindow, RecordingConfig, RunConfig

#: Where verl's profiler writes, inside the trace folder.
FOLDER: Final = "kernel"

_ACTOR: Final = "actor_rollout_ref.actor.profiler"
_REF: Final = "actor_rollout_ref.ref.profiler"
_ROLLOUT: Final = "actor_rollout_ref.rollout.profiler"

#: Rows of a profile for the forward and backward pass of one layer over one micro-batch; a forward
#: pass alone is a third of it.
_EVENTS_PER_LAYER: Final = 700
#: Rows for each token where verl computes log-probabilities in a loop (no flash-attn): counted in
#: a profile of a Qwen2 model on a CPU, 30, and doubled for launches and kernels.
_EVENTS_PER_TOKEN: Final = 60
#: A row of that profile, compressed.
_BYTES_PER_EVENT: Final = 15
_LAYERS: Final = 32
_MICRO_BATCHES: Final = 16
_SEQUENCES: Final = 1024
#: Of the longest response, the part that a response has on average.
_MEAN_LENGTH: Final = 0.5


def overrides(config: RunConfig, trace: Path) -> dict[str, Any]:
    """Return verl's settings for the window that `config` asks for, none without one.

    Each stage gets a file of its own (`discrete`), since a file of a whole step would hold every
    stage of it.
    """
    window = config.profile.kernel
    if window is None:
        return {}
    tool = tool_of(config, window)
    return {
        "global_profiler.tool": tool,
        "global_profiler.steps": sorted(set(window.steps)),
        "global_profiler.save_path": str(trace / FOLDER),
        "global_profiler.relocate_results": True,
        # The rollout's profiler follows the actor's unless it is told not to.
        f"{_ROLLOUT}.enable": False,
        **_of_role(_ACTOR, tool, window, config),
        **(_of_role(_REF, tool, window, config) if _profiles_reference(window) else {}),
    }


def tool_of(config: RunConfig, window: KernelWindow) -> str:
    """Return the profiler that is asked for, or the one that suits the device."""
    return window.tool or ("npu" if config.device == "npu" else "torch")


def _profiles_reference(window: KernelWindow) -> bool:
    return "ref_compute_log_prob" in window.roles


def _of_role(section: str, tool: str, window: KernelWindow, config: RunConfig) -> dict[str, Any]:
    values: dict[str, Any] = {
        f"{section}.enable": True,
        f"{section}.ranks": window.ranks,
        f"{section}.tool_config.{tool}.discrete": True,
    }
    contents = {"torch": ["cpu" if config.device == "cpu" else "cuda"], "npu": ["npu"]}
    if tool in contents:  # nothing else: no stacks, no shapes, no memory
        values[f"{section}.tool_config.{tool}.contents"] = contents[tool]
    return values


def limits(config: RecordingConfig) -> dict[str, Any]:
    """Return what the collectors inside the ranks hold the profiler to; empty without a window."""
    window = config.profile.kernel if isinstance(config, RunConfig) else None
    if window is None:
        return {}
    return {"kernel": {"roles": window.roles, "max_seconds": window.max_seconds}}


def import_windows(trace: Path, run_id: str) -> list[str]:
    """Bring the files of PyTorch's profiler into the trace; return what the user should know."""
    folder = trace / FOLDER
    if not folder.is_dir():
        return []
    from rlinsight.collectors.importers.torch_profiler import import_folder
    from rlinsight.trace.writer import TraceWriter

    with TraceWriter(trace, run_id=run_id) as writer:
        problems = import_folder(folder, writer)
    return [f"kernel window: {problem}" for problem in problems]


def estimated_bytes(config: RunConfig, number: Callable[[str], int | None]) -> int:
    """Return the expected size of all files of the window, in bytes, compressed; 0 without one.

    Events grow with layers x micro-batches, and with tokens where verl loops over them; `number`
    returns what verl will use for a key. An order of magnitude: attention kernels, offloading and
    parallelism all change the count.
    """
    window = config.profile.kernel
    if window is None:
        return 0
    per_pass = _layers(config.model) * _EVENTS_PER_LAYER * _micro_batches(number)
    if not fused_log_probs():
        per_pass += _EVENTS_PER_TOKEN * _tokens(number)
    passes = sum(1.0 if role == "actor_update" else 1 / 3 for role in window.roles)
    files = len(window.steps) * len(window.ranks)
    return round(files * passes * per_pass * _BYTES_PER_EVENT)


_SIZE_KEYS: Final = (
    "data.train_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
)


def fused_log_probs() -> bool:
    """Return whether verl has a kernel for log-probabilities: flash-attn's cross-entropy."""
    return importlib.util.find_spec("flash_attn") is not None


def _sequences(number: Callable[[str], int | None]) -> float:
    """Return the sequences that one rank trains in one stage."""
    prompts, n, mini, devices, nodes = map(number, _SIZE_KEYS)
    prompts = prompts or mini
    if not (prompts and n):
        return _SEQUENCES
    return max(1.0, prompts * n / ((devices or 1) * (nodes or 1)))


def _micro_batches(number: Callable[[str], int | None]) -> float:
    micro = number("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")
    return max(1.0, _sequences(number) / micro) if micro else _MICRO_BATCHES


def _tokens(number: Callable[[str], int | None]) -> float:
    longest = number("data.max_response_length") or 0
    return _sequences(number) * longest * _MEAN_LENGTH


def _layers(model: str) -> int:
    try:
        found = json.loads((Path(model) / "config.json").read_text())["num_hidden_layers"]
        return int(found)
    except (OSError, ValueError, KeyError, TypeError):
        return _LAYERS
