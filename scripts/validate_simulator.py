"""Write the tables of docs/simulator.md that hold the simulator against recorded runs.

    python scripts/validate_simulator.py

Four tables: the sample traces, each by itself, and from its metrics alone; and what
`make record-validation` measured of other settings, on emulated devices and on a CPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import rlinsight
from rlinsight.analyzers.simulate import Calibration, Knobs
from rlinsight.analyzers.simulate.coarse import calibrate_metrics
from rlinsight.analyzers.simulate.knobs import knobs_of_run
from rlinsight.analyzers.simulate.reproduce import (
    Recorded,
    reproduce,
    same_window,
)
from rlinsight.analyzers.simulate.validation import Row, Validation, check_run, summarize
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
#: The profile whose runs are no emulation.
CPU = "cpu"
MEASURED = ROOT / "benchmarks" / "validation" / "measured"
#: Modes in the order of the table.
CALIBRATED = ("fully_async", "separate_async", "colocate_async", "sync")
COLUMNS = (
    "tokens/s per device", "predicted", "error", "waits", "predicted", "error", "in the interval",
)  # fmt: skip


def of_samples() -> str:
    """Return the table of the sample traces, each simulated with its own setting."""
    rows: list[tuple[str, ...]] = []
    short: list[str] = []
    for folder in _samples():
        found = _of_sample(folder)
        rows += found
        short += [] if found else [f"`{folder.name}`"]
    columns = ("run", "figure", "recorded", "simulated", "error")
    lines = table(Section("", columns, tuple(rows)))
    if short:
        lines += ["", f"Too short to calibrate from, or without samples: {', '.join(short)}."]
    return "\n".join(lines)


def of_metrics_alone() -> str:
    """Return the throughput of the sample traces as their metrics alone let it be predicted."""
    rows = []
    for folder in _samples():
        trace = rlinsight.open(folder)
        report, metrics = trace.analyze(), trace.metrics.collect()
        window = same_window(report)
        if window is None or window[1] < FEWEST or metrics.is_empty():
            continue
        knobs = knobs_of_run(trace.mode, trace.manifest.config, trace.topology)
        try:
            coarse = calibrate_metrics(metrics, knobs, trace.manifest.run_id)
        except TraceError:
            continue
        _, (throughput, *_) = reproduce(coarse, report, seeds=SEEDS)
        rows.append((folder.name, *comparison(throughput)[1:]))
    return "\n".join(table(Section("", ("run", "recorded", "simulated", "error"), tuple(rows))))


def _samples() -> list[Path]:
    return [file.parent for file in sorted((ROOT / "sample_traces").glob("*/manifest.json"))]


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


def measured_runs() -> list[dict[str, Any]]:
    """Return what was measured of each run."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in MEASURED.glob("*.json")]


def of_settings() -> str:
    """Return the table of other settings on emulated devices, a calibration per mode."""
    measured = [run for run in measured_runs() if run["profile"] != CPU]
    order = {mode: place for place, mode in enumerate(CALIBRATED)}
    rows, lines = [], []
    for mode in sorted({run["knobs"]["mode"] for run in measured}, key=lambda mode: order[mode]):
        runs = [run for run in measured if run["knobs"]["mode"] == mode]
        calibration = _calibration(runs)
        found = summarize([_measured(calibration, run) for run in _others(runs)])
        rows += [_cells(row, mode) for row in found.rows]
        lines.append(f"* {mode}: {_summary(found)}")
    columns = ("mode", "run", "differs in", *COLUMNS)
    said = [*table(Section("", columns, tuple(rows))), "", *lines]
    return "\n".join([*said, *_doubted(measured), *_missing(measured)])


def _doubted(measured: Sequence[dict[str, Any]]) -> list[str]:
    """Say which runs the machine could not quite follow, as their own reports do."""
    doubted = [f"`{run['run']}` ({len(run['doubts'])})" for run in measured if run["doubts"]]
    return [
        "",
        f"The machine could not quite follow {len(doubted)} of {len(measured)} runs: real time "
        "taken by verl or by other work counts as emulated time in them. With the number of "
        f"limits of [emulated.md](emulated.md) that each was beyond: {', '.join(sorted(doubted))}.",
    ] if doubted else []  # fmt: skip


def _missing(measured: Sequence[dict[str, Any]]) -> list[str]:
    """Say which settings were not recorded yet."""
    runs = yaml.safe_load((MEASURED.parent / "settings.yaml").read_text(encoding="utf-8"))["runs"]
    wanted = {name for name, run in runs.items() if run["profile"] != CPU}
    left = sorted(wanted - {run["run"] for run in measured})
    return ["", f"Not recorded yet: {', '.join(f'`{name}`' for name in left)}."] if left else []


def _calibration(runs: Sequence[dict[str, Any]]) -> Calibration:
    return next(
        Calibration.from_dict(run["calibration"]) for run in runs if run["calibration"] is not None
    )


def _others(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all runs but the calibrated one, in the order of their differences."""
    return sorted(
        (run for run in runs if run["calibration"] is None), key=lambda run: str(run["run"])
    )


def _measured(calibration: Calibration, run: dict[str, Any]) -> Row:
    window = run["warm_up_versions"], run["versions"]
    measured = Recorded(**run["recorded"])
    return check_run(run["run"], calibration, measured, Knobs(**run["knobs"]), window, SEEDS)


def of_cpu_runs() -> str:
    """Return the table of real runs on a CPU, all from the calibration of one."""
    runs = [run for run in measured_runs() if run["profile"] == CPU]
    calibration = _calibration(runs)
    found = summarize([_measured(calibration, run) for run in _others(runs)])
    cells = tuple(_cells(row) for row in found.rows)
    columns = ("run", "differs in", *COLUMNS)
    return "\n".join([*table(Section("", columns, cells)), "", _summary(found)])


def _summary(found: Validation) -> str:
    return (
        f"{len(found.rows)} settings; throughput error median {percent(found.median_error)}, worst "
        f"{percent(found.worst_error)}; the trainer's wait at most "
        f"{_points(found.worst_wait_error).lstrip('+')} off; {percent(found.same_order)} of the "
        "pairs of runs that differ by more than 2 % in the right order."
    )


def _cells(row: Row, *first: str) -> tuple[str, ...]:
    return (
        *first,
        row.run,
        change_text(row.changes) or "nothing",
        number(row.throughput),
        with_interval(row.predicted, number),
        _signed(row.throughput_error),
        percent(row.wait_share),
        with_interval(row.predicted_wait, percent),
        _points(row.wait_error),
        {True: "yes", False: "no", None: "-"}[row.within],
    )


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{error * 100:+.1f} %"


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
    write("sample traces", of_samples())
    write("metrics alone", of_metrics_alone())
    write("other settings", of_settings())
    write("real runs", of_cpu_runs())
