"""All rules, in the order of the catalogue."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.finding import Rule
from rlinsight.analyzers.advise.rules import (
    asynchronous,
    batching,
    engine,
    memory,
    resources,
    routing,
    staleness,
    sync,
    tail,
    validation,
)

RULES: Final[tuple[Rule, ...]] = (
    *sync.CORRECTNESS,
    *resources.RULES,
    *asynchronous.RULES,
    *validation.RULES,
    *routing.RULES,
    *sync.RULES,
    *engine.RULES,
    *batching.RULES,
    *memory.RULES,
    *tail.RULES,
    *staleness.RULES,
)
