"""The story of a tuning as Markdown: every decision with its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from rlinsight.report.markdown import escaped, table
from rlinsight.report.tune.words import evidence, headline, runs
from rlinsight.runs.tune.log import Log, Record


def markdown(log: Log) -> str:
    """Return `tuning.md`."""
    lines = [f"# Tuning {escaped(log.name)} for {log.objective} throughput", ""]
    lines += [f"{escaped(line)}\n" for line in headline(log)]
    if log.records:
        lines += ["## Runs", "", *table(runs(log))]
    for one in log.records:
        lines += _run(one)
    lines += _skipped(log)
    return "\n".join(lines).rstrip() + "\n"


def _run(one: Record) -> Iterator[str]:
    what = one.kind if one.candidate is None else one.candidate.rule
    yield from ("", f"## Run {one.number}: {escaped(what)}, {one.decision or 'under way'}", "")
    if one.candidate is not None:
        yield from (escaped(one.candidate.says), "")
    if one.reason:
        yield from (f"**Decision**: {escaped(one.reason)}", "")
    for name, text in evidence(one):
        yield f"* **{name}**: " + (f"`{text}`" if name in ("change", "trace") else escaped(text))


def _skipped(log: Log) -> Iterator[str]:
    if log.skipped:
        yield from ("", "## Left out", "")
    for one in log.skipped:
        change = f" (`{one.change}`)" if one.change else ""
        yield f"* beside run {one.beside}: `{one.rule}`{change}: {escaped(one.reason)}"
