"""All rules, in the order of the catalogue."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.finding import Rule
from rlinsight.analyzers.advise.rules import (
    asynchronous,
    batching,
    corruption,
    engine,
    fresher,
    memory,
    resources,
    routing,
    staleness,
    sync,
    tail,
    tools,
    update_size,
    validation,
)

RULES: Final[tuple[Rule, ...]] = (
    *sync.CORRECTNESS,
    *corruption.RULES,
    *resources.RULES,
    *asynchronous.RULES,
    *validation.RULES,
    *routing.RULES,
    *sync.RULES,
    *engine.RULES,
    *tools.RULES,
    *batching.RULES,
    *update_size.RULES,
    *memory.RULES,
    *tail.RULES,
    *staleness.RULES,
    *fresher.RULES,
)
