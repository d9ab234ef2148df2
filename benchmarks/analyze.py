"""How long the full analysis of a large trace takes, and how it grows.

    python benchmarks/analyze.py [--spans 10000000] [--runs 3] [--json]

Makes a trace of that many spans, a tenth as many requests and samples, and one a tenth of that
size for the exponent. Each figure is the median of runs in processes of their own. Peers on the
same spans in the same run: an interval union written plainly in pandas, and Holistic Trace
Analysis' idle-time breakdown where both are installed (extra `bench`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Figure, report

LANES = 512
#: About so many spans go to Holistic Trace Analysis, which reads JSON.
KERNELS = 100_000

Measured = dict[str, float]


def timed(call: Callable[[], object]) -> Measured:
    """Return wall and processor seconds of a call, and the peak memory of the process."""
    import resource

    clock, before = time.perf_counter(), os.times()
    call()
    seconds, after = time.perf_counter() - clock, os.times()
    spent = after.user + after.system - before.user - before.system
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "cpu_seconds": spent, "peak_bytes": peak}


def analysis(path: str) -> Measured:
    """The whole analysis, from opening the folder to the document; imports count."""
    import rlinsight

    return timed(lambda: rlinsight.open(path).analyze().to_dict())


def our_union(path: str) -> Measured:
    """The union of the spans of each lane and activity."""
    import rlinsight
    from rlinsight.analyzers.device_time.intervals import union

    spans = rlinsight.open(path).spans.collect()
    return timed(lambda: union(spans, ["lane", "activity"]))


def pandas_union(path: str) -> Measured:
    """The same union, as one would write it in pandas."""
    import rlinsight

    frame = rlinsight.open(path).spans.select("lane", "activity", "start_ns", "end_ns").collect()
    spans = frame.to_pandas()

    def union() -> None:
        for _, rows in spans.groupby(["lane", "activity"]):
            ordered = rows.sort_values("start_ns")
            reach = ordered["end_ns"].cummax().shift()
            island = (ordered["start_ns"] > reach).cumsum()
            ordered.groupby(island).agg({"start_ns": "min", "end_ns": "max"})

    return timed(union)


def our_idle(path: str) -> Measured:
    """The idle time between the spans of each of a few lanes, from our trace."""
    import kineto

    import rlinsight

    idle: list[float] = []
    taken = timed(lambda: idle.append(kineto.idle_seconds(rlinsight.open(path), KERNELS)))
    return {**taken, "idle_seconds": idle[0]}


def hta_idle(path: str) -> Measured:
    """The same from a Kineto file of the same spans, by Holistic Trace Analysis."""
    import kineto
    from hta.trace_analysis import TraceAnalysis

    import rlinsight

    idle: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rank0.json"
        kineto.write(file, rlinsight.open(path), KERNELS)

        def breakdown() -> None:
            found = TraceAnalysis(trace_files={0: str(file)}, trace_dir=folder)
            table, _ = found.get_idle_time_breakdown(visualize=False)
            idle.append(float(table["idle_time"].sum()) / 1e6)

        taken = timed(breakdown)
    return {**taken, "idle_seconds": idle[0]}


PARTS = {
    part.__name__: part for part in (analysis, our_union, pandas_union, our_idle, hta_idle)
}  # fmt: skip


def measured(part: str, path: Path, runs: int) -> Measured:
    """Return the medians of a part, run in fresh processes."""
    command = [sys.executable, __file__, "--part", part, str(path)]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def sizes(folder: Path, spans: int, runs: int) -> list[Figure]:
    """Return the figures of the analysis at a tenth of `spans` and at all of them."""
    small, large = (measured("analysis", folder / name, runs) for name in ("small", "large"))
    exponent = math.log10(large["seconds"] / small["seconds"])
    scale = spans / 1e6
    return [
        Figure(f"analysis of {scale / 10:g} M spans, 512 lanes", small["seconds"], "s"),
        Figure(f"analysis of {scale:g} M spans, 512 lanes", large["seconds"], "s", at_most=10),
        Figure("the same, processor time", large["cpu_seconds"], "s"),
        Figure("growth exponent", exponent, "", at_most=1.1),
        Figure("peak memory", large["peak_bytes"] / 1e9, "GB", at_most=4),
    ]


def peers(path: Path, runs: int) -> list[Figure]:
    """Return the comparisons that can be made with what is installed."""
    found = []
    if importlib.util.find_spec("pandas"):
        ours, theirs = (measured(part, path, runs) for part in ("our_union", "pandas_union"))
        found += [
            Figure("interval union", ours["seconds"], "s"),
            Figure("interval union, pandas", theirs["seconds"], "s"),
            Figure("pandas / ours", theirs["seconds"] / ours["seconds"], "x", at_least=1),
        ]
    if importlib.util.find_spec("hta"):
        ours, theirs = (measured(part, path, runs) for part in ("our_idle", "hta_idle"))
        apart = abs(theirs["idle_seconds"] / ours["idle_seconds"] - 1)
        found += [
            Figure("idle time of 0.1 M spans", ours["seconds"], "s"),
            Figure("idle time, Holistic Trace Analysis", theirs["seconds"], "s"),
            Figure("HTA / ours", theirs["seconds"] / ours["seconds"], "x", at_least=1),
            Figure("idle times differ by", apart * 100, "%", at_most=0.01),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="for the traces; temporary")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("path", nargs="?", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part](given.path)))
        return
    import synthetic

    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        for size, spans in (("small", given.spans // 10), ("large", given.spans)):
            rows = spans // 10
            synthetic.write(folder / size, spans=spans, requests=rows, samples=rows, lanes=LANES)
        figures = sizes(folder, given.spans, given.runs) + peers(folder / "small", given.runs)
    report("analysis", figures)


if __name__ == "__main__":
    main()
