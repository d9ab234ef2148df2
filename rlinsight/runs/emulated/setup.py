"""What every process of an emulated run has to know: its cost model and its devices."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

from rlinsight.runs.emulated.cost import Emulated
from rlinsight.runs.section import Section

#: Environment variable that carries it, as JSON, into every process of the run.
VARIABLE: Final = "RLINSIGHT_EMULATED"


class PoolSize(Section):
    """The devices of one pool, all nodes together, and those of one node."""

    devices: int
    per_node: int


class Setup(Section):
    """The section `emulated` of the run, and its pools; no rollout pool where it has none."""

    cost: Emulated
    trainer: PoolSize
    rollout: PoolSize | None = None


@lru_cache(maxsize=1)
def setup() -> Setup:
    """Return what the launcher handed to this process."""
    return Setup.model_validate_json(os.environ[VARIABLE])
