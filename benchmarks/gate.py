"""How often `rlinsight check` cries wolf, and how often it misses, beside the rules of others.

    python benchmarks/gate.py [--pairs 500] [--json] [--write docs/check.md]

Every rule sees the same seeded runs (benchmarks/gate_runs.py): 24 steps, the first cut as warm-up,
at the per-step spreads that were recorded on real machines, and a spread of 1 % between
machines. A false alarm is a red verdict on a run in which nothing was slowed; a miss is a green
one on a run whose phases were all slowed. The other rules get the mean (or minimum) of the same
steady step times, and the last accepted run to compare with, as they would have.
`--write` replaces the tables between the marks in a page.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import gate_runs
from gate_runs import Kind
from harness import Figure, report

from rlinsight.analyzers.gate.check import check
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import CheckResult
from rlinsight.analyzers.gate.settings import Settings

#: Per-step spreads that were recorded: a quiet GPU node to two shared CPU cores.
NOISES = (0.0023, 0.01, 0.03, 0.09)
MACHINE = 0.01
HISTORIES = (1, 5)
MACHINES = (0.0, 0.01, 0.02, 0.03)
MANY = (1, 5, 10)
SLOWDOWNS = (0.10, 0.25)
LONGER = 1.2
TODAY = date(2026, 1, 1)
MARKS = ("<!-- gate table: written by `make gate-table` -->", "<!-- end of gate table -->")

Rule = Callable[[Sequence[float], Sequence[float]], bool]

#: Rules of common CI tools: step times of the accepted run and of the new one -> is it red?
RULES: dict[str, Rule] = {
    "pytest-benchmark `mean:5%`": lambda old, new: over(statistics.mean, old, new) > 1.05,
    "pytest-benchmark `min:5%`": lambda old, new: over(min, old, new) > 1.05,
    "10 % (CodSpeed's default)": lambda old, new: over(statistics.mean, old, new) > 1.10,
    "200 % (github-action-benchmark's)": lambda old, new: over(statistics.mean, old, new) > 2.0,
}


def over(
    what: Callable[[Sequence[float]], float], old: Sequence[float], new: Sequence[float]
) -> float:
    return what(new) / what(old)


@dataclass(frozen=True)
class Trial:
    """One pair of runs: is `rlinsight check` red on each variant of the new run, and the rules?

    `slowed` is by 3 x the smallest detectable change of the step time, `barely` by 1 x.
    """

    null: bool
    barely: bool
    slowed: bool
    detectable: float
    variants: dict[str, bool]
    rules: dict[str, dict[str, bool]]


def judged(new: Observation, history: Sequence[Observation]) -> CheckResult:
    named = {str(run.run_id): run for run in history}
    return check(new, named, Settings(), TODAY)


def red(new: Observation, history: Sequence[Observation]) -> bool:
    return judged(new, history).verdict == "FAIL"


def slowed(kind: Kind, by: float) -> Kind:
    return replace(kind, slow=dict.fromkeys(gate_runs.PHASES, 1 + by))


def trial(kind: Kind, runs: int, seed: int, *, compare: bool = True) -> Trial:
    """Return the verdicts on one new run beside `runs` accepted ones of the same kind."""
    first = seed * 1000
    history = [gate_runs.observation(kind, first + i) for i in range(1, runs + 1)]
    new = first + 999
    null = judged(gate_runs.observation(kind, new), history)
    detectable = detectable_share(null)
    variants = {f"{by:.0%}": slowed(kind, by) for by in SLOWDOWNS} if compare else {}
    longer = {"longer": replace(kind, longer=LONGER)} if compare else {}
    kinds = {"null": kind, **variants, **longer, "slowed": slowed(kind, 3 * detectable)}
    found = {name: gate_runs.observation(k, new) for name, k in kinds.items()}
    old = steady_times(history[-1])
    return Trial(
        null=null.verdict == "FAIL",
        barely=red(gate_runs.observation(slowed(kind, detectable), new), history),
        slowed=red(found["slowed"], history),
        detectable=detectable,
        variants={name: red(found[name], history) for name in (*variants, *longer)},
        rules={
            rule: {name: is_red(old, steady_times(run)) for name, run in found.items()}
            for rule, is_red in RULES.items()
        },
    )


def detectable_share(result: CheckResult) -> float:
    step = next(m for m in result.metrics if m.name == "step_time_s")
    assert step.detectable
    assert step.reference
    return step.detectable / step.reference


def steady_times(run: Observation) -> list[float]:
    return [seconds for seconds in run.windows["step_s"] if seconds is not None]


def share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def percent(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def rows(noise: float, trials: dict[int, list[Trial]]) -> list[list[str]]:
    """Return the table rows of one noise level: ours per history, then the others."""
    found = []
    for runs, mine in trials.items():
        detectable = statistics.mean(t.detectable for t in mine)
        found.append(
            [f"`rlinsight check`, {runs} accepted", share([t.null for t in mine]),
             share([t.variants["longer"] for t in mine]),
             *(1 - share([t.variants[f"{by:.0%}"] for t in mine]) for by in SLOWDOWNS),
             1 - share([t.barely for t in mine]), 1 - share([t.slowed for t in mine]), detectable]
        )  # fmt: skip
    mine = trials[max(trials)]
    for rule in RULES:
        reds = {name: share([t.rules[rule][name] for t in mine]) for name in mine[0].rules[rule]}
        found.append(
            [rule, reds["null"], reds["longer"], *(1 - reds[f"{by:.0%}"] for by in SLOWDOWNS),
             None, 1 - reds["slowed"], None]
        )  # fmt: skip
    return [[f"{noise * 100:g} %", str(row[0]), *map(_cell, row[1:])] for row in found]


def _cell(value: object) -> str:
    return "-" if value is None else percent(float(str(value)))


def table(every: list[list[str]], pairs: int) -> str:
    amounts = [f"{by:.0%}".replace("%", " %") for by in SLOWDOWNS]
    amounts += ["1 x detectable", "3 x detectable"]
    head = ["spread per step", "rule", "false alarms", "false alarms, responses 20 % longer",
            *(f"missed, slowed by {amount}" for amount in amounts), "detectable"]  # fmt: skip
    lines = [head, ["---"] * len(head), *every]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{pairs} pairs of runs a row; machines differ by {MACHINE:.0%}.\n\n{text}".replace(
        "1%", "1 %"
    )


def machine_rows(pairs: int) -> list[list[str]]:
    """Return false alarms by how much machines differ and how many runs were accepted."""
    found = []
    for machine in MACHINES:
        kind = Kind(noise=0.03, machine=machine)
        for runs in MANY:
            trials = [null_trial(kind, runs, seed) for seed in range(pairs)]
            reds, detectable = zip(*trials, strict=True)
            cells = [percent(share(reds)), percent(statistics.mean(detectable))]
            found.append([f"{machine * 100:g} %", str(runs), *cells])
    return found


def null_trial(kind: Kind, runs: int, seed: int) -> tuple[bool, float]:
    """Return whether an equal run is red, and the smallest detectable change of the step time."""
    first = seed * 1000
    history = [gate_runs.observation(kind, first + i) for i in range(1, runs + 1)]
    result = judged(gate_runs.observation(kind, first + 999), history)
    return result.verdict == "FAIL", detectable_share(result)


def machine_table(every: list[list[str]], pairs: int) -> str:
    head = ["machines differ by", "accepted runs", "false alarms", "detectable"]
    lines = [head, ["---"] * len(head), *every]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return (
        f"Where equal runs differ by more than the 1 % that is assumed at first ({pairs} pairs a "
        f"row, 3 % per step), it takes accepted runs, or `run_to_run`, to say so:\n\n{text}"
    )


def figures(noise: float, trials: dict[int, list[Trial]]) -> list[Figure]:
    found = []
    for runs, mine in trials.items():
        at = f"spread {noise:.2%}, {runs} accepted"
        false, caught, barely = (
            share([getattr(t, name) for t in mine]) * 100 for name in ("null", "slowed", "barely")
        )
        found += [
            Figure(f"false alarms, {at}", false, "%", at_most=2),
            Figure(f"caught, 3 x detectable, {at}", caught, "%", at_least=95),
            Figure(f"caught, 1 x detectable, {at}", barely, "%"),
        ]
    return found


def write(page: Path, text: str) -> None:
    """Replace what stands between the marks of `page`."""
    old = page.read_text(encoding="utf-8")
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    new, count = re.subn(pattern, lambda _: f"{MARKS[0]}\n\n{text}\n\n{MARKS[1]}", old, flags=re.S)
    if count != 1:
        raise SystemExit(
            f"expected the marks of the table once in {page}, found them {count} times"
        )
    page.write_text(new, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, default=None)
    given = parser.parse_args()
    every, found = [], []
    for noise in NOISES:
        kind = Kind(noise=noise, machine=MACHINE)
        trials = {k: [trial(kind, k, seed) for seed in range(given.pairs)] for k in HISTORIES}
        every += rows(noise, trials)
        found += figures(noise, trials)
    if given.write is not None:
        tables = [
            table(every, given.pairs),
            machine_table(machine_rows(given.pairs), given.pairs),
        ]
        write(given.write, "\n\n".join(tables))
    report("gate", found)


if __name__ == "__main__":
    main()
