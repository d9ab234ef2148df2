"""`rlinsight analyze`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlinsight.cli.files import say_written, write
from rlinsight.cli.shell import opening, quoted

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report


def analyze(
    trace: Annotated[str, typer.Argument(help="A trace folder, or an fsspec URL of one.")],
    *,
    window: Annotated[
        str | None,
        typer.Option(help="START:END in seconds since the recording began; either may be empty."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="FIRST:LAST training step, both included.")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="Only this pool (trainer, rollouter); repeatable.")
    ] = None,
    lane: Annotated[
        list[str] | None, typer.Option(help="Only the devices of this lane; repeatable.")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Leave out the detailed tables.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the report as Markdown.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the report as one HTML file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say where the device time of a recorded run went, who owns the bubbles, and why.

    Reads a live, crashed, compacted or partial trace. All figures are recomputed from
    recorded intervals; what the framework reported stands beside them. docs/analysis.md
    defines every figure.
    """
    import rlinsight
    from rlinsight.cli.selection import chosen_window, known_pools, of_pools

    opened = rlinsight.open(trace)
    report = opened.analyze(window=chosen_window(opened, window, steps), lanes=lane or None)
    pools = known_pools(report, pool)
    written = _reports(report, pools, markdown, html)
    if json:
        typer.echo(json_module.dumps(of_pools(report.to_dict(), pools), indent=1))
        return
    from rlinsight.cli.terminal import console
    from rlinsight.report.plain import line
    from rlinsight.report.text import print_report
    from rlinsight.report.units import percent

    print_report(report, console(), pools=pools, full=not brief)
    idle = ", ".join(f"{name} idle {percent(report.pools[name].idle_ratio)}" for name in pools)
    typer.echo("")
    say_written(markdown, html)
    name = line(Path(opened.path).name)
    typer.echo(f"{name}: {idle or 'no device time could be accounted for'}")
    typer.echo(f"next: {_next(trace, written)}")


def _reports(
    report: Report, pools: list[str], markdown: Path | None, html: Path | None
) -> Path | None:
    """Write the asked-for files and return the one to open."""
    if markdown is not None:
        from rlinsight.report.markdown import markdown as to_markdown

        write(markdown, to_markdown(report, pools))
    if html is not None:
        from rlinsight.report.html import html as to_html

        write(html, to_html(report, pools))
    return html or markdown


def _next(trace: str, written: Path | None) -> str:
    if written is not None:
        return opening(written)
    return f"rlinsight analyze {quoted(trace)} --html report.html"
