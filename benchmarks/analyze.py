"""How long the full analysis of a large trace takes, and how it grows.

Peers on the same spans in the same run: an interval union written plainly in pandas, and
Holistic Trace Analysis' idle-time breakdown where it is installed (extra `bench`).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import synthetic
from harness import Figure, report

LANES = 512
#: One small size and one ten times as large, for the exponent.
SIZES = (1_000_000, 10_000_000)


def one(path: str) -> None:
    """Analyze `path` in this process; print seconds and peak memory as JSON."""
    import resource

    import rlinsight

    began = time.perf_counter()
    rlinsight.open(path).analyze().to_dict()
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


def pandas_union(path: str) -> None:
    """The union of the spans of each lane and activity, as one would write it in pandas."""
    import rlinsight

    frame = rlinsight.open(path).spans.select("lane", "activity", "start_ns", "end_ns")
    spans = frame.collect().to_pandas()
    began = time.perf_counter()
    busy = {}
    for key, rows in spans.groupby(["lane", "activity"]):
        ordered = rows.sort_values("start_ns")
        reach = ordered["end_ns"].cummax().shift()
        island = (ordered["start_ns"] > reach).cumsum()
        merged = ordered.groupby(island).agg({"start_ns": "min", "end_ns": "max"})
        busy[key] = (merged["end_ns"] - merged["start_ns"]).sum()
    print(json.dumps({"seconds": time.perf_counter() - began, "groups": len(busy)}))


def ours_union(path: str) -> None:
    """The same union with ours."""
    import rlinsight
    from rlinsight.analyzers.device_time.intervals import union

    frame = rlinsight.open(path).spans.select("lane", "activity", "start_ns", "end_ns")
    spans = frame.collect()
    began = time.perf_counter()
    union(spans, ["lane", "activity"])
    print(json.dumps({"seconds": time.perf_counter() - began}))


def measured(part: str, path: Path) -> dict[str, float]:
    """Run one part in a fresh process."""
    command = [sys.executable, __file__, "--part", part, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("path", nargs="?")
    given = parser.parse_args()
    if given.part:
        PARTS[given.part](given.path)
        return
    results, unions = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / str(size)
            synthetic.write(path, spans=size, requests=size // 10, samples=size // 10, lanes=LANES)
            results[size] = measured("one", path)
        for part in ("ours_union", "pandas_union"):
            unions[part] = measured(part, Path(folder) / str(SIZES[0]))
    small, large = (results[size]["seconds"] for size in SIZES)
    exponent = math.log(large / small) / math.log(SIZES[1] / SIZES[0])
    ratio = unions["pandas_union"]["seconds"] / unions["ours_union"]["seconds"]
    report(
        f"analysis over {LANES} lanes",
        [
            Figure("1 M spans + 0.1 M requests + 0.1 M samples", small, "s"),
            Figure("10 M spans + 1 M requests + 1 M samples", large, "s", at_most=10),
            Figure("growth exponent", exponent, "", at_most=1.1),
            Figure("peak memory at 10 M", results[SIZES[1]]["peak_bytes"] / 1e9, "GB", at_most=4),
            Figure("pandas interval union, 1 M spans", unions["pandas_union"]["seconds"], "s"),
            Figure("our interval union, 1 M spans", unions["ours_union"]["seconds"], "s"),
            Figure("pandas / ours", ratio, "x", at_least=1),
        ],
    )


PARTS = {"one": one, "pandas_union": pandas_union, "ours_union": ours_union}

if __name__ == "__main__":
    main()
