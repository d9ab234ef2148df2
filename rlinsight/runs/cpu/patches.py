"""The changes to verl, vLLM and torch that no registry of theirs can express.

Each is data: where, what and why. One whose target is missing or has another signature than the
one it was written for is skipped, and the log says so.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rlinsight.runs.cpu.imports import when_imported

log = logging.getLogger(__name__)

Function = Callable[..., Any]


@dataclass(frozen=True)
class Patch:
    """One function to replace, right after its module has been imported."""

    name: str
    module: str
    function: str
    parameters: tuple[str, ...]
    why: str
    replace: Callable[[Function], Function]

    def obstacle(self, module: ModuleType) -> str | None:
        """Return why this patch does not fit the module, or None if it does."""
        target = getattr(module, self.function, None)
        if not callable(target):
            return f"`{self.module}.{self.function}` does not exist"
        found = tuple(inspect.signature(target).parameters)
        if found != self.parameters:
            return (
                f"`{self.module}.{self.function}` takes ({', '.join(found)}), "
                f"expected ({', '.join(self.parameters)})"
            )
        return None

    def apply(self, module: ModuleType) -> bool:
        """Replace the function in `module`; return False, and log why, if it does not fit."""
        reason = self.obstacle(module)
        if reason:
            log.warning("CPU patch `%s` skipped: %s. Without it: %s", self.name, reason, self.why)
            return False
        original = getattr(module, self.function)
        setattr(module, self.function, functools.wraps(original)(self.replace(original)))
        return True


def _one_backend_per_device(original: Function) -> Function:
    def initialize(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    return initialize


def _keep_the_weight(_original: Function) -> Function:
    def dispatch(layer: Any, **_: bool) -> None:
        from torch.nn.functional import linear

        layer.cpu_linear = linear

    return dispatch


def _copy_what_is_saved(original: Function) -> Function:
    def save(model: Any) -> Any:
        shards, spec = original(model)
        return {name: (shard.clone(), s) for name, (shard, s) in shards.items()}, spec

    return save


def _without_pinning(original: Function) -> Function:
    def policy(**_: bool) -> Any:
        return original(pin_memory=False)

    return policy


def _portable_attention(_original: Function) -> Function:
    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    return load


def _accept(_original: Function) -> Function:
    return lambda *_: None


PATCHES: tuple[Patch, ...] = (
    Patch(
        name="process_group_backend",
        module="verl.utils.distributed",
        function="initialize_global_process_group_ray",
        parameters=("timeout_second", "backend"),
        why="the default backend becomes `cpu:gloo,cpu:gloo`, which torch refuses as a duplicate",
        replace=_one_backend_per_device,
    ),
    Patch(
        name="vllm_linear",
        module="vllm.model_executor.layers.utils",
        function="dispatch_cpu_unquantized_gemm",
        parameters=("layer", "remove_weight"),
        why="vLLM packs each weight and drops the original, so the first weight sync fails",
        replace=_keep_the_weight,
    ),
    Patch(
        name="fsdp2_save_to_cpu",
        module="verl.utils.fsdp_utils",
        function="fsdp2_sharded_save_to_cpu",
        parameters=("model",),
        why=(
            "`.cpu()` returns the live parameter itself, so that with parameter_sync_step > 1 "
            "old log-probs silently come from the new policy"
        ),
        replace=_copy_what_is_saved,
    ),
    Patch(
        name="reference_offload",
        module="verl.workers.engine.fsdp.transformer_impl",
        function="CPUOffloadPolicy",
        parameters=("pin_memory",),
        why="FSDP2 keeps the reference policy in pinned memory, which needs an accelerator",
        replace=_without_pinning,
    ),
    Patch(
        name="critic_attention",
        module="verl.utils.model",
        function="load_valuehead_model",
        parameters=("local_path", "torch_dtype", "model_config", "trust_remote_code"),
        why="the critic's model asks for flash attention whatever the configuration says",
        replace=_portable_attention,
    ),
    Patch(
        name="fsdp1_sync_module_states",
        module="torch.distributed.fsdp._init_utils",
        function="_check_module_states_for_sync_module_states",
        parameters=("module_states",),
        why="FSDP1 (actor.strategy=fsdp) refuses to broadcast CPU parameters, which gloo can do",
        replace=_accept,
    ),
)


def install(patches: Sequence[Patch] = PATCHES) -> None:
    """Arrange for every patch to be applied when its module is imported."""
    for patch in patches:
        when_imported(patch.module, patch.apply)
