"""What the tests of the gate share: the runs that its benchmark makes, and the command line."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from typer.testing import CliRunner

from rlinsight.analyzers.gate.check import check
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict
from rlinsight.analyzers.gate.settings import Settings
from rlinsight.cli import app
from rlinsight.errors import RlinsightError

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_traces"
sys.path.insert(0, str(ROOT / "benchmarks"))

import gate as gate_benchmark  # noqa: E402
import gate_runs  # noqa: E402

__all__ = ["TODAY", "cli", "gate_benchmark", "gate_runs", "judged", "metric"]

TODAY = date(2026, 6, 15)


def judged(new: Observation, *history: Observation, **settings) -> CheckResult:
    """Check a run against a history with the given settings."""
    named = {str(run.run_id): run for run in history}
    return check(new, named, Settings(**settings), TODAY)


def metric(result: CheckResult, name: str) -> MetricVerdict:
    return next(m for m in result.metrics if m.name == name)


class Ran:
    """What a command printed and its exit code, as the shell would see it."""

    def __init__(self, *arguments: str | Path) -> None:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        self.error = result.exception if isinstance(result.exception, RlinsightError) else None
        self.code = result.exit_code if self.error is None else self.error.exit_code
        if self.error is None and result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.out, self.err = result.stdout, result.stderr + (str(self.error or ""))

    @property
    def json(self) -> dict:
        return json.loads(self.out)


def cli(*arguments: str | Path) -> Ran:
    """Run a command in this process."""
    return Ran(*arguments)
