"""All that would fail, said at once and before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rlinsight.errors import ConfigError, PreflightError
from rlinsight.runs.checks import (
    batches,
    cluster,
    duration,
    machine,
    refused,
    sequences,
    shares,
    software,
    training,
)
from rlinsight.runs.checks.facts import Check, Facts, Severity
from rlinsight.runs.config import RecordingConfig
from rlinsight.runs.plan import Plan
from rlinsight.runs.settings import Settings, compose, verl_folder

CHECKS: Final[tuple[Check, ...]] = (
    *software.CHECKS,
    *duration.CHECKS,
    *batches.CHECKS,
    *shares.CHECKS,
    *refused.CHECKS,
    *sequences.CHECKS,
    *training.CHECKS,
    *machine.CHECKS,
    *cluster.CHECKS,
)


@dataclass(frozen=True)
class Finding:
    """A check that found a problem."""

    check: str
    message: str
    severity: Severity


def facts_of(config: RecordingConfig, plan: Plan, url: str | None = None) -> Facts:
    """Gather what the checks look at; `url` is where the trace is copied to in the end."""
    settings, problem = Settings(), None
    if plan.module and verl_folder() is not None:
        try:
            settings = compose(plan.module, plan.overrides)
        except ConfigError as error:
            problem = str(error)
    return Facts(
        config=config,
        trace=plan.trace,
        url=url,
        settings=settings,
        settings_error=problem,
        command=plan.command,
        wrapped=plan.module is None,
        environment={**os.environ, **plan.environment},
    )


def findings(facts: Facts) -> list[Finding]:
    """Return every problem found, in the order of `CHECKS`."""
    apply = [check for check in CHECKS if check.wrapped or not facts.wrapped]
    found = [(check.name, check.find(facts)) for check in apply]
    return [Finding(name, p.message, p.severity) for name, p in found if p is not None]


def require(found: Iterable[Finding]) -> None:
    """Raise PreflightError naming every error among the findings; warnings pass."""
    errors = [finding for finding in found if finding.severity == "error"]
    if not errors:
        return
    lines = [f"  {finding.check}: {_indented(finding.message)}" for finding in errors]
    count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
    raise PreflightError("\n".join([f"the run was not started, {count}:", *lines]))


def _indented(message: str) -> str:
    return message.replace("\n", "\n    ")
