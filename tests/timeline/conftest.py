"""Traces that read as timelines, and their indexes."""

from __future__ import annotations

import pytest
from timeline_index import Run
from timelines import S, Timeline

from rlinsight.webapp.timeline.build import build


@pytest.fixture
def run(tmp_path) -> Run:
    """Two steps: wait, train; the rollouter pauses while the trainer trains; then one that hangs.

    replica0 works on two requests over 0-4 and one over 4-6.
    """
    line = Timeline(tmp_path / "trace")
    for number, start in enumerate((0, 10)):
        line.step(number, start, start + 10)
        line.span("trainer", "wait_samples", start, start + 4, step=number)
        line.span("trainer", "update_actor", start + 4, start + 10, step=number, param_version=1)
        line.span("trainer/rank0", "update_actor", start + 4, start + 10, step=number)
    line.span("rollouter", "paused", 6, 10, attrs={"reason": "staleness_quota"})
    line.span("rollouter", "validate", 12, 13)
    line.span("trainer", "checkpoint", 20, None)
    line.gen(0, 4, first_token_ns=S, response_tokens=6, version_start=0)
    line.gen(0, 4, finish="abort")
    line.gen(4, 6, finish="length")
    line.writer.counter("staleness_samples", 2, lane="rollouter", ts_ns=0)
    line.writer.counter("staleness_samples", 6, lane="rollouter", ts_ns=5 * S)
    line.writer.counter("max_required_samples", 6, lane="rollouter", ts_ns=0)
    line.writer.marker("param_sync", lane="replica0", param_version=0, ts_ns=0)
    line.writer.marker("param_sync", lane="replica0", param_version=1, ts_ns=9 * S)
    line.writer.marker("pause", lane="rollouter", reason="staleness_quota", ts_ns=6 * S)
    line.writer.marker("end", lane="trainer", ts_ns=24 * S)
    return Run(line.open())


@pytest.fixture
def index(run):
    return build(run.trace)


@pytest.fixture
def busy(tmp_path):
    """A lane with 4000 intervals of 1 ms, 2 ms apart, except for a gap of 1 s at 4 s."""
    line = Timeline(tmp_path)
    for i in range(4000):
        at = i * 0.002 + (1.0 if i >= 2000 else 0.0)
        line.span("trainer", "update_actor", at, at + 0.001)
    return build(line.open())
