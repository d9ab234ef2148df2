"""The advisor: evidence, exact change, predicted effect, risk, and how to tell it was wrong."""

from __future__ import annotations

from rlinsight.analyzers.advise.advise import advise
from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Advice, Evidence, Finding, Rule
from rlinsight.analyzers.advise.rules import RULES

__all__ = ["RULES", "Advice", "Case", "Evidence", "Finding", "Rule", "advise"]
