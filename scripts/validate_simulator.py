"""Write the tables of docs/simulator.md that hold the simulator against recorded runs.

usage: python scripts/validate_simulator.py                    the sample traces, each by itself
       python scripts/validate_simulator.py CALIBRATION RUN... other settings from one calibration

CALIBRATION and RUN are trace folders; the setting of a RUN is read from its configuration. What
is no setting but a property of the work is given behind the folder: `runs/long,length_scale=2`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import rlinsight
from rlinsight.analyzers.simulate import Calibration
from rlinsight.analyzers.simulate.knobs import knobs_of_run
from rlinsight.analyzers.simulate.reproduce import reproduce, same_window
from rlinsight.analyzers.simulate.validation import Row, check_run, summarize
from rlinsight.errors import TraceError
from rlinsight.report.markdown import table
from rlinsight.report.section import Section
from rlinsight.report.units import number, percent
from rlinsight.report.whatif.sections import change_text, comparison, with_interval

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "simulator.md"
SEEDS = range(20)
#: A run of fewer versions says little.
FEWEST = 3


def of_samples() -> str:
    """Return the table of the sample traces, each simulated with its own setting."""
    rows: list[tuple[str, ...]] = []
    short: list[str] = []
    for manifest in sorted((ROOT / "sample_traces").glob("*/manifest.json")):
        found = _of_sample(manifest.parent)
        rows += found
        short += [] if found else [f"`{manifest.parent.name}`"]
    columns = ("run", "figure", "recorded", "simulated", "error")
    lines = table(Section("", columns, tuple(rows)))
    if short:
        lines += ["", f"Too short to calibrate from, or without samples: {', '.join(short)}."]
    return "\n".join(lines)


def _of_sample(folder: Path) -> list[tuple[str, ...]]:
    """Return the rows of a trace, none where it does not hold enough."""
    trace = rlinsight.open(folder)
    report = trace.analyze()
    window = same_window(report)
    if window is None or window[1] < FEWEST:
        return []
    try:
        calibration = Calibration.from_report(trace, report)
    except TraceError:
        return []
    _, compared = reproduce(calibration, report, seeds=SEEDS)
    return [(folder.name, *comparison(row)) for row in compared if row.recorded is not None]


def of_runs(calibrated: str, runs: Sequence[str]) -> str:
    """Return the table of other settings, predicted from one run."""
    calibration = Calibration.from_trace(rlinsight.open(calibrated))
    found = summarize([_row(calibration, run) for run in runs])
    columns = (
        "run", "differs in", "tokens/s per device", "predicted", "error", "waits", "predicted",
        "error", "in the interval",
    )  # fmt: skip
    lines = table(Section("", columns, tuple(_cells(row) for row in found.rows)))
    lines += [
        "",
        f"Calibrated from `{Path(calibrated).name}`. Throughput error: median "
        f"{percent(found.median_error)}, worst {percent(found.worst_error)}; the trainer's wait "
        f"at most {_points(found.worst_wait_error)} off; {percent(found.same_order)} of the pairs "
        "of runs in the right order.",
    ]
    return "\n".join(lines)


def _row(calibration: Calibration, text: str) -> Row:
    folder, *changes = text.split(",")
    trace = rlinsight.open(folder)
    knobs = knobs_of_run(trace.mode, trace.manifest.config, trace.topology)
    pairs = (change.split("=", 1) for change in changes)
    knobs = knobs.changed({name: json.loads(value) for name, value in pairs})
    return check_run(Path(folder).name, calibration, trace.analyze(), knobs, SEEDS)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.run,
        change_text(row.changes) or "nothing",
        number(row.throughput),
        with_interval(row.predicted, number),
        "-" if row.throughput_error is None else f"{row.throughput_error * 100:+.1f} %",
        percent(row.wait_share),
        with_interval(row.predicted_wait, percent),
        _points(row.wait_error),
        {True: "yes", False: "no", None: "-"}[row.within],
    )


def _points(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:+.1f} points"


def write(name: str, text: str) -> None:
    """Put `text` between the marks of a table in docs/simulator.md."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = DOCS.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"expected the marks `{begin}` and `{end}` in {DOCS}")
    DOCS.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", page), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write("sample traces", of_samples())
    elif len(sys.argv) > 2:
        write("other settings", of_runs(sys.argv[1], sys.argv[2:]))
    else:
        raise SystemExit(__doc__)
