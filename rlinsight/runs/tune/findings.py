"""Which findings about a run may be tried, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlinsight.errors import ConfigError
from rlinsight.runs.tune.change import changed, held_by
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Candidate, Log, Record, Skipped

_REFUSED: Final = "preflight refuses it: "


def to_mend(kept: Record, limits: Limits) -> Candidate | None:
    """Return the finding that forbids to tune before it is mended, None where there is none."""
    assert kept.measured is not None
    found = (one for one in kept.measured.candidates if one.mend_first)
    return next((one for one in found if one.rule not in limits.despite), None)


def refused(candidate: Candidate, beside: int | None, why: str) -> Skipped:
    """Return a finding as left out because preflight refuses its configuration."""
    return Skipped(beside or 0, candidate.rule, candidate.change, f"{_REFUSED}{why}")


def is_refusal(skipped: Skipped) -> bool:
    """Whether preflight was the reason, which another day may find otherwise."""
    return skipped.reason.startswith(_REFUSED)


def possible(
    candidate: Candidate, kept: Record, log: Log, limits: Limits
) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return the configuration of an experiment, or why it is not made."""
    if not candidate.overrides:
        return None, "it names no setting to change: it is for a person to look into"
    if candidate.changes_reward:
        return None, (
            "it changes what is rewarded, so that the rewards of the two runs could not be compared"
        )
    held = held_by(candidate.overrides, limits.hold)
    if held is not None:
        return None, f"it changes {held}, which --hold leaves as it is"
    if candidate.costs_quality and not limits.allow_quality_risk:
        return None, f"it may cost training quality ({candidate.risk}); --allow-quality-risk tries"
    try:
        document = changed(kept.document, candidate.overrides)
    except ConfigError as error:
        return None, str(error)
    runs = (one for one in log.records if one.kind != "smoke" and log.stands(one))
    same = next((one for one in runs if one.document == document), None)
    if same is not None:
        return None, f"run {same.number} was of this configuration already"
    return document, None
