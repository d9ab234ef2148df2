"""What every benchmark prints: a table of figures with their bounds, or `--json`.

A benchmark fails (exit code 1) when a figure misses its bound. Machines are shared and
noisy: figures are medians, and comparisons with peers come from one run, taken in turn.

With BENCH_FIGURES in the environment the figures are written into that folder, too, for `rlinsight
check`: beside them the yardstick, by which it takes times, so that machines can be compared.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured figure; `at_most` or `at_least` is its bound, in the same unit."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def bound(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""


def median_ns(call: Callable[[], object], calls: int) -> float:
    """Return the median time of one `call` in nanoseconds, less the cost of measuring."""
    clock = time.perf_counter_ns
    empty, taken = [], []
    for _ in range(calls):
        start = clock()
        empty.append(clock() - start)
    for _ in range(calls):
        start = clock()
        call()
        taken.append(clock() - start)
    return statistics.median(taken) - statistics.median(empty)


def yardstick_s() -> float:
    """Return the seconds that a fixed piece of work takes here and now: the median of nine."""

    def work() -> None:
        table: dict[int, int] = {}
        for i in range(100_000):
            table[i & 1023] = table.get(i & 1023, 0) + i
        sorted(range(200_000, 0, -1), key=lambda i: i * 2654435761 % 1_000_003)

    taken = []
    for _ in range(9):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def document(title: str, figures: list[Figure]) -> str:
    """Return the figures as JSON, the form that `rlinsight check` reads."""
    rows = [asdict(figure) for figure in figures]
    return json.dumps({"benchmark": title, "yardstick_s": yardstick_s(), "figures": rows}, indent=1)


def report(title: str, figures: list[Figure]) -> None:
    """Print the figures and exit: 0 when all bounds hold, else 1."""
    missed = [figure for figure in figures if not figure.holds]
    folder = os.environ.get("BENCH_FIGURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{title}.json").write_text(document(title, figures) + "\n")
    if "--json" in sys.argv:
        print(document(title, figures))
    else:
        print(title)
        for figure in figures:
            bound = figure.bound() + ("" if figure.holds else "  MISSED")
            print(f"  {figure.name:<52} {figure.value:>12,.4g} {figure.unit:<12}{bound}")
    sys.exit(1 if missed else 0)
