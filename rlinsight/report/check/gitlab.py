"""A check as a GitLab code-quality report: what the merge request's widget lists."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from rlinsight.report.check.words import headline, sentence

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict


def gitlab(result: CheckResult, path: str) -> str:
    """Return the report; `path` is the file that findings are attached to, the configuration say.

    The fingerprint of a finding is of metric and verdict, not of the figures, so that GitLab
    recognizes it in the next pipeline.
    """
    if result.error is not None:
        rows = [_row("comparison", "ERROR", headline(result), "blocker", path)]
    else:
        rows = [
            _row(m.name, m.verdict, sentence(m), _severity(result, m), path)
            for m in result.metrics
            if m.verdict != "PASS"
        ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _row(name: str, verdict: str, text: str, severity: str, path: str) -> dict[str, Any]:
    digest = hashlib.sha256(f"rlinsight check {name} {verdict}".encode()).hexdigest()
    return {
        "description": text,
        "check_name": f"rlinsight/{name}",
        "fingerprint": digest,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": 1}},
    }


def _severity(result: CheckResult, metric: MetricVerdict) -> str:
    if result.shadow or metric.verdict == "INACTIVE":
        return "info"
    if metric.verdict == "ERROR":
        return "blocker"
    return "major" if metric.fails else "minor"
