"""`rlinsight doctor`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from rlinsight.runs.doctor import Line


DOCTOR_SCHEMA_VERSION: Final = 1


def doctor(
    *,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also import verl and vLLM (half a minute and more)."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say what this machine can run and what would be recorded, and what to do about the rest.

    Names every hook that does not fit the installed verl; with `--json` all of them. Exits with 1
    when something that a recorded run needs is missing.
    """
    from rich.console import Console

    from rlinsight.runs.doctor import examine, hook_states, worst

    console, lines = Console(highlight=False), []
    for line in examine(deep=deep):
        lines.append(line)
        if not json:
            _print(line, console)
    if json:
        document = {
            "schema_version": DOCTOR_SCHEMA_VERSION,
            "lines": [asdict(line) for line in lines],
            "hooks": [asdict(state) for state in hook_states(deep=deep)],
        }
        typer.echo(json_module.dumps(document, indent=1))
    else:
        _summarize(lines)
    raise typer.Exit(1 if worst(lines) == "missing" else 0)


def _print(line: Line, console: Console) -> None:
    from rich.text import Text

    style = {"ok": "green", "warning": "yellow", "missing": "red"}[line.status]
    text = Text.assemble((f"{line.status:<8}", style), f"{line.name:<14} {line.found}")
    console.print(text, soft_wrap=True)
    if line.advice:
        console.print(Text(" " * 23 + f"-> {line.advice}"), soft_wrap=True)


def _summarize(lines: list[Line]) -> None:
    from rlinsight.report.units import counted

    missing = [line.name for line in lines if line.status == "missing"]
    warnings = sum(line.status == "warning" for line in lines)
    if missing:
        typer.echo(f"cannot record a verl run here yet: {', '.join(missing)}")
        typer.echo("next: rlinsight doctor   # again, when the arrows above were followed")
    else:
        typer.echo(f"ready, {counted(warnings, 'warning')}" if warnings else "ready")
        typer.echo("next: rlinsight run --profile config.yaml --check")
