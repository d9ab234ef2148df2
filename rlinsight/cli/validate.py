"""`rlinsight validate`."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rlinsight.cli.shell import quoted
from rlinsight.errors import TraceError
from rlinsight.report.plain import line

if TYPE_CHECKING:
    from rich.console import Console

    from rlinsight.trace.validation import Validation


_NOTHING: Final = (
    "expected recorded rows in `{place}`, found none in any table: nothing was recorded; "
    "`rlinsight doctor` says whether verl would load the collectors here"
)


def validate(
    trace: Annotated[str, typer.Argument(help="A trace folder, or an fsspec URL of one.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say whether a trace is whole, and what is wrong with it.

    Counts the rows of each table, checks lanes, drops, overlaps, clocks, hooks, and that
    requests and samples are all accounted for. Exit code 0: nothing found, 1: findings, 2:
    no usable trace.
    """
    import rlinsight
    from rlinsight.trace.validate import validate as check

    result = check(rlinsight.open(trace))
    if json:
        typer.echo(json_module.dumps(result.to_dict(), indent=1))
    else:
        from rlinsight.cli.terminal import unbounded

        _print(result, unbounded(highlight=False, markup=False))
    if not (result.rows or result.is_live):
        raise TraceError(_NOTHING.format(place=result.path))
    if not json:
        typer.echo(_summary(result))
        typer.echo(f"next: {_next(trace, result)}")
    if not result.ok:
        raise typer.Exit(1)


def _print(result: Validation, console: Console) -> None:
    _print_tables(result, console)
    _print_counts(result, console)
    for heading, lines in (
        ("finding", [f"{finding.kind}: {finding.message}" for finding in result.findings]),
        ("note", list(result.notes)),
    ):
        for said in lines:
            console.print(f"{heading}  {line(said)}")


def _print_tables(result: Validation, console: Console) -> None:
    from rich.table import Table

    table = Table("table", box=None, pad_edge=False)
    for heading in ("rows", "bytes", "bytes/row", "dropped"):
        table.add_column(heading, justify="right")
    for name, check in result.tables.items():
        per_row = f"{check.bytes / check.rows:.1f}" if check.rows else "-"
        table.add_row(name, f"{check.rows:,}", f"{check.bytes:,}", per_row, f"{check.dropped:,}")
    console.print(table)


def _print_counts(result: Validation, console: Console) -> None:
    requests, samples = result.requests, result.samples
    if requests.submitted:
        console.print(
            f"requests  {requests.submitted:,} = {requests.finished:,} finished + "
            f"{requests.aborted:,} aborted + {requests.in_flight:,} in flight + "
            f"{requests.unknown:,} unknown"
        )
    if samples.samples:
        console.print(
            f"samples   {samples.samples:,} = {samples.trained:,} trained + "
            f"{samples.dropped_stale:,} dropped as stale + {samples.filtered:,} filtered + "
            f"{samples.aborted:,} aborted + {samples.unconsumed:,} unconsumed + "
            f"{samples.unknown:,} unknown"
        )
    for clock in result.clocks:
        if len(result.clocks) > 1:
            known = "not known" if clock.residual_ns is None else f"{clock.residual_ns / 1e6} ms"
            console.print(f"clock     {line(clock.node)}: residual {known}")
    if result.hook_share is not None and result.hook_share_largest is not None:
        console.print(
            f"overhead  {result.hook_share:.4%} of the wall time spent in hooks, over all "
            f"processes; {result.hook_share_largest:.4%} by the one that spent most"
        )


def _summary(result: Validation) -> str:
    from rlinsight.report.units import counted

    length = "no time" if result.duration_s is None else f"{result.duration_s:.1f} s"
    count = len(result.findings)
    verdict = counted(count, "finding") if count else "valid"
    rows, lanes = counted(result.rows, "row"), counted(len(result.lanes), "lane")
    return line(f"{result.path}: {verdict}; {rows} on {lanes} over {length}")


def _next(trace: str, result: Validation) -> str:
    if not result.duration_s:
        if result.is_live:
            return f"rlinsight validate {quoted(trace)}   # again, when something was recorded"
        return "rlinsight doctor"
    return f"rlinsight analyze {quoted(trace)}"
