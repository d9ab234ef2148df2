"""A check for GitHub Actions: annotations, and the summary of the step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlinsight.errors import RlinsightError
from rlinsight.report.check.markdown import markdown
from rlinsight.report.check.words import attribution_lines, headline, sentence

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult

#: Annotations that a step may have; GitHub drops the rest.
MOST = 10


def commands(result: CheckResult) -> list[str]:
    """Return the workflow commands, the worst first: what fails, errs, is watched or inactive."""
    return list(_commands(result))[:MOST]


def _commands(result: CheckResult) -> Iterator[str]:
    worst = "warning" if result.shadow and result.error is None else "error"
    if result.error is not None:
        yield _command(worst, "rlinsight check: ERROR", result.error)
        return
    for metric in (m for m in result.metrics if m.fails):
        where = attribution_lines(result.attribution) if result.attribution else []
        yield _command(worst, f"{metric.name} got worse", "\n".join([sentence(metric), *where]))
    for metric in (m for m in result.metrics if m.verdict == "ERROR"):
        yield _command(worst, f"{metric.name} cannot be judged", sentence(metric))
    for metric in (m for m in result.metrics if m.verdict == "FAIL" and not m.fails):
        yield _command("warning", f"{metric.name} moved", sentence(metric))
    if any(metric.verdict == "INACTIVE" for metric in result.metrics) or not result.metrics:
        yield _command("warning", "rlinsight check: not everything was compared", _inactive(result))


def _inactive(result: CheckResult) -> str:
    inactive = [metric for metric in result.metrics if metric.verdict == "INACTIVE"]
    return "\n".join([headline(result), *map(sentence, inactive)])


def write_summary(result: CheckResult) -> None:
    """Append the check to the step summary, where there is one.

    Raises RlinsightError where it cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown(result))
    except OSError as error:
        raise RlinsightError(f"cannot write the step summary `{path}`: {error}") from error


def _command(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
