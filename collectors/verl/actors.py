"""Names that a process learns from being a Ray actor: its worker number and its lanes."""

from __future__ import annotations

import re
from functools import lru_cache

#: `<engine>_server_<model>_<replica>_<node>[_<key>]`, as verl names what serves another model.
_SERVED = re.compile(r"server_(reward|teacher)_\d+_\d+(?:_(.+))?$")


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


def served_model(name: str) -> str | None:
    """Return `reward` or `teacher` for a server of such a model, None for the policy's."""
    other = _SERVED.search(name)
    return other.group(1) if other else None


def replica_lane_id(rank: int, name: str) -> str:
    """Return the lane of replica `rank`, such as `replica0` or `reward/replica0`.

    Reward and teacher models number their replicas from 0 as well, each of several teachers
    its own: `vllm_server_teacher_0_0_math` is `teacher/math/replica0`.
    """
    other = _SERVED.search(name)
    if other is None:
        return f"replica{rank}"
    model, key = other.groups()
    return f"{model}/{key}/replica{rank}" if key else f"{model}/replica{rank}"
