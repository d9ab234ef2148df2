"""How a trainer's devices share an update: by sequence, by model, and by data.

One definition for the advisor, which has a recorded configuration, and for the checks before a run,
which have composed settings: both are asked by dotted key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

Lookup = Callable[[str], object]

_ACTOR: Final = "actor_rollout_ref.actor"
_MEGATRON: Final = tuple(
    f"{_ACTOR}.megatron.{kind}_parallel_size"
    for kind in ("tensor_model", "pipeline_model", "context")
)
_CONTEXT: Final = _MEGATRON[-1]
ULYSSES: Final = f"{_ACTOR}.ulysses_sequence_parallel_size"


def sequence_parallel_key(get: Lookup) -> str:
    """Return the key of the number of devices that share one sequence."""
    return _CONTEXT if _is_megatron(get) else ULYSSES


def sequence_parallel_size(get: Lookup) -> int:
    """Return the number of devices that share one sequence (1 unless configured)."""
    return _size(get, sequence_parallel_key(get))


def model_parallel_keys(get: Lookup) -> tuple[str, ...]:
    """Return the keys whose product is the number of devices of one data-parallel rank."""
    return _MEGATRON if _is_megatron(get) else (ULYSSES,)


def model_parallel_size(get: Lookup) -> int:
    """Return the number of devices of one data-parallel rank."""
    return math.prod(_size(get, key) for key in model_parallel_keys(get))


def data_parallel_ranks(get: Lookup, devices: int) -> int | None:
    """Return how many ranks get sequences of their own; None where devices form no whole ranks.

    Worked examples: 16 devices under FSDP with Ulysses 2 are 8 ranks; under Megatron with tensor
    parallelism 4 and pipelines of 2, which ignores Ulysses, they are 2; 12 of them are none.
    """
    ranks, rest = divmod(devices, model_parallel_size(get))
    return ranks if ranks and not rest else None


def _is_megatron(get: Lookup) -> bool:
    return get(f"{_ACTOR}.strategy") == "megatron"


def _size(get: Lookup, key: str) -> int:
    value = get(key)
    return int(value) if isinstance(value, (int, float)) and value >= 1 else 1
