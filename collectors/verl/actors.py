"""Names that a process learns from being a Ray actor: its worker number and its lanes."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1)
def actor_name() -> str:
    """Return the Ray name of the actor that this process runs, empty where there is none."""
    try:
        import ray

        return ray.get_runtime_context().get_actor_name() or ""
    except Exception:  # not a Ray worker: a driver, an engine's own process, a test
        return ""


def worker_lane(prefix: str, name: str, pid: int) -> str:
    """Return the lane of a numbered worker, such as `reward/0` for `reward_loop_worker_0`.

    An actor without a number in its name is told apart by its process.
    """
    number = re.search(r"worker_(\d+)", name)
    return f"{prefix}/{number.group(1) if number else f'pid{pid}'}"


def replica_lane_id(rank: int, name: str) -> str:
    """Return the lane of replica `rank`, where the servers of a reward or teacher model differ.

    Their ranks start at 0 too: `vllm_server_reward_0_0` is not `replica0`.
    """
    other = re.search(r"server_(reward|teacher)_", name)
    return f"{other.group(1)}_replica{rank}" if other else f"replica{rank}"
