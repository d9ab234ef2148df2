"""What no registry of verl can express: wrappers around functions, none of which is replaced.

Each is an entry of `PATCHES`; one whose target is missing is skipped, and the log says so and
what follows. Ray exports some of these classes by value, and their wrappers with them: a
wrapper names nothing but functions of modules, and looks up state when it is called.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rlinsight.collectors.verl.hooks import HookSkipped
from rlinsight.collectors.verl.wrap import locate
from rlinsight.runs.cpu.imports import when_imported
from rlinsight.runs.emulated import one_process, requests, update_clock, waits

log = logging.getLogger(__name__)

Function = Callable[..., Any]

#: What `rollout.name` is.
ENGINE: Final = "emulated"

_FULLY_ASYNC: Final = "verl.experimental.fully_async_policy"
_SEPARATION: Final = "verl.experimental.separation"
_V1: Final = "verl.trainer.ppo.v1"


@dataclass(frozen=True)
class Patch:
    """One function to wrap, right after its module has been imported."""

    module: str
    target: str
    why: str
    wrap: Callable[[Function], Function]

    def apply(self, module: ModuleType) -> bool:
        """Wrap the target in `module`; return False, and log why, where it is not there."""
        try:
            owner, name = locate(module, self.target)
        except HookSkipped as reason:
            log.warning("emulated devices: skipped: %s. Without it: %s", reason, self.why)
            return False
        original = getattr(owner, name)
        static = inspect.getattr_static(owner, name)
        if isinstance(static, functools.partial) or not callable(original):
            log.warning("emulated devices: `%s` is no function. Without: %s", name, self.why)
            return False
        setattr(owner, name, functools.wraps(original)(self.wrap(original)))
        return True


def _occupies(module: str, target: str) -> Patch:
    why = "an update may seem to begin while its devices are busy otherwise"
    return Patch(module, target, why, update_clock.occupying)


PATCHES: Final[tuple[Patch, ...]] = (
    Patch(
        "verl.single_controller.ray.base",
        "RayResourcePool.__init__",
        "verl starts a training process for each device",
        one_process.one_process,
    ),
    Patch(
        "verl.workers.rollout.llm_server",
        "LLMServerManager._initialize_llm_servers",
        "verl starts hybrid replicas for one device instead of all",
        one_process.all_hybrid_replicas,
    ),
    Patch(
        "verl.workers.engine_workers",
        "ActorRolloutRefWorker.__init__",
        "a training process refuses replicas of several devices",
        one_process.replica_in_one_process,
    ),
    Patch(
        f"{_SEPARATION}.engine_workers",
        "DetachActorWorker._get_strategy_handlers",
        "saving the old policy fails for a strategy that verl does not know",
        one_process.nothing_to_save,
    ),
    Patch(
        "verl.experimental.agent_loop.agent_loop",
        "AgentLoopWorker._run_agent_loop",
        "lengths differ from run to run",
        requests.named_request,
    ),
    Patch(
        "verl.experimental.agent_loop.single_turn_agent_loop",
        "SingleTurnAgentLoop.run",
        "each response costs a reward worker 2 ms of CPU, and a call to it",
        requests.reward_at_once,
    ),
    Patch(
        "verl.experimental.agent_loop.agent_loop",
        "AgentLoopWorker._pad_token_ids",
        "each response costs milliseconds of CPU",
        requests.direct_padding,
    ),
    Patch(
        f"{_FULLY_ASYNC}.fully_async_trainer",
        "FullyAsyncTrainer.fit",
        "the last half second may be missing from the trace",
        update_clock.flushed,
    ),
    Patch(
        f"{_V1}.trainer_base",
        "PPOTrainer.fit",
        "the last half second may be missing from the trace",
        update_clock.flushed,
    ),
    Patch(
        f"{_FULLY_ASYNC}.message_queue",
        "MessageQueueClient.get_sample",
        "an update begins when verl gets to it, not when its batch was there",
        update_clock.sample_fetched,
    ),
    Patch(
        f"{_V1}.replay_buffer",
        "ReplayBuffer.__init__",
        "the trainer looks for samples every 2 real seconds",
        waits.scaled_poll,
    ),
    Patch(
        f"{_V1}.replay_buffer",
        "ReplayBufferAsync.sample",
        "an update begins when verl gets to it, not when its batch was there",
        update_clock.batch_fetched,
    ),
    Patch(
        f"{_SEPARATION}.ray_trainer",
        "SeparateRayPPOTrainer._update_actor",
        "the update does not know when its batch was there",
        update_clock.stamped_batch,
    ),
    Patch(
        f"{_V1}.trainer_base",
        "PPOTrainer._update_actor",
        "the update does not know when its batch was there",
        update_clock.stamped_keys,
    ),
    _occupies(f"{_FULLY_ASYNC}.fully_async_trainer", "FullyAsyncTrainer._fit_update_weights"),
    _occupies(f"{_FULLY_ASYNC}.fully_async_trainer", "FullyAsyncTrainer._fit_validate"),
    _occupies(f"{_FULLY_ASYNC}.fully_async_trainer", "FullyAsyncTrainer._save_checkpoint"),
    _occupies(f"{_V1}.trainer_base", "PPOTrainer._validate"),
    _occupies(f"{_V1}.trainer_base", "PPOTrainer._save_checkpoint"),
    *(
        _occupies(f"{_V1}.{module}", f"{trainer}.{method}")
        for module, trainer, methods in (
            ("trainer_sync", "PPOTrainerSync", ("on_sample_end", "on_step_end")),
            ("trainer_colocate_async", "PPOTrainerColocateAsync", ("on_sample_end", "on_step_end")),
            (
                "trainer_separate_async",
                "PPOTrainerSeparateAsync",
                ("switch_to_trainer", "on_step_end"),
            ),
        )
        for method in methods
    ),
)

#: Names of verl's modules that are bound to something else: module, name, what, why.
NAMES: Final[tuple[tuple[str, str, Callable[[], Any], str], ...]] = (
    ("verl.workers.rollout.llm_server", "asyncio", waits.ScaledAsyncio, "it waits real seconds"),
    (
        f"{_FULLY_ASYNC}.fully_async_rollouter",
        "asyncio",
        waits.ScaledAsyncio,
        "it waits real seconds",
    ),
    (
        "verl.experimental.agent_loop.agent_loop",
        "hydra",
        requests.DirectHydra,
        "each response costs 4 ms of CPU",
    ),
)


def _rebind(name: str, make: Callable[[], Any], why: str, module: ModuleType) -> None:
    if not hasattr(module, name):
        log.warning("emulated devices: `%s` has no `%s`. Without: %s", module.__name__, name, why)
        return
    setattr(module, name, make())


def _register_replica(module: ModuleType) -> None:
    def load() -> type:
        from rlinsight.runs.emulated.replica import EmulatedReplica

        return EmulatedReplica

    module.RolloutReplicaRegistry.register(ENGINE, load)


def _register_rollout(module: ModuleType) -> None:
    place = "rlinsight.runs.emulated.rollout.EmulatedRollout"
    module._ROLLOUT_REGISTRY[(ENGINE, "async")] = place


def _register_engine(_: ModuleType) -> None:
    import rlinsight.runs.emulated.engine  # noqa: F401


def install() -> None:
    """Arrange for every patch and registration when its module is imported."""
    when_imported("verl.workers.rollout.replica", _register_replica)
    when_imported("verl.workers.rollout.base", _register_rollout)
    when_imported("verl.workers.engine", _register_engine)
    for patch in PATCHES:
        when_imported(patch.module, patch.apply)
    for module, name, make, why in NAMES:
        when_imported(module, functools.partial(_rebind, name, make, why))
