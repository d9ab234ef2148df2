"""`rlinsight analyze`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from rlinsight.errors import RlinsightError


def analyze(
    trace: Annotated[str, typer.Argument(help="A trace folder, or an fsspec URL of one.")],
    *,
    window: Annotated[
        str | None,
        typer.Option(
            help="Only this part, in seconds since the recording began: START:END, either may "
            "be left out.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say where the device time of a recorded run went.

    Reads a live, crashed, compacted or partial trace. All figures are recomputed from
    recorded intervals; what the framework reported stands beside them.
    """
    import rlinsight

    opened = rlinsight.open(trace)
    report = opened.analyze(window=_window(window, opened.time_range))
    if json:
        typer.echo(json_module.dumps(report.to_dict(), indent=1))
        return
    from rich.console import Console

    from rlinsight.report.text import percent, print_report

    print_report(report, Console())
    idle = ", ".join(f"{name} idle {percent(p.idle_ratio)}" for name, p in report.pools.items())
    typer.echo(f"{Path(trace).name}: {idle or 'no device time could be accounted for'}")
    typer.echo(f"next: rlinsight validate {trace}")


def _window(text: str | None, time_range: tuple[int, int] | None) -> tuple[int, int] | None:
    """Turn START:END in seconds since the start of the recording into epoch nanoseconds."""
    if text is None:
        return None
    if time_range is None:
        raise RlinsightError("a window needs a trace with recorded times, and this one has none")
    try:
        start, end = text.split(":")
        first, last = time_range
        return (
            first + round(float(start) * 1e9) if start else first,
            first + round(float(end) * 1e9) if end else last,
        )
    except ValueError as error:
        raise RlinsightError(
            f"expected `--window START:END` in seconds, such as `--window 60:120`, found `{text}`"
        ) from error
