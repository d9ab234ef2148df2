"""`rlinsight whatif`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlinsight.cli.files import say_written, write
from rlinsight.cli.shell import opening, quoted
from rlinsight.errors import ConfigError

if TYPE_CHECKING:
    from rlinsight.analyzers.simulate import Calibration
    from rlinsight.report.whatif.answer import Answer


def whatif(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace folder, an fsspec URL of one, or a saved calibration (.json)."
        ),
    ],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KNOB=VALUE, or verl's override; repeatable."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="KNOB=A,B,C: try each value, and each combination; repeatable."),
    ] = None,
    objective: Annotated[
        Literal["per-device", "wall-clock"] | None,
        typer.Option(help="What a change is for; without it, both are shown."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Simulated runs per setting.")] = 5,
    versions: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Parameter versions to measure per run."),
    ] = None,
    knobs: Annotated[
        bool, typer.Option("--knobs", help="List the knobs of the run's mode and stop.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the calibration here, to ask again without the trace."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the answer as Markdown.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the answer as one HTML file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Predict what a changed setting would do, from a recorded run.

    Simulates verl's scheduling of the run's mode with the lengths, speeds and costs of the
    trace; shows first how well the run itself is reproduced. docs/simulator.md lists the knobs
    and says what is modelled and what is not.
    """
    from rlinsight.cli.whatif_answer import answer, loaded

    if knobs and (set_ or sweep or markdown or html):
        raise ConfigError(
            "`--knobs` lists the knobs and stops: drop it, or `--set`, `--sweep`, `--markdown` and "
            "`--html`"
        )
    calibration, report = loaded(trace)
    if save is not None:
        write(save, calibration.to_json())
    if knobs:
        _list(trace, calibration, save, as_json=json)
        return
    found = answer(
        trace, calibration, report, changes=set_ or [], sweeps=sweep or [],
        objective=objective, seeds=seeds, versions=versions,
    )  # fmt: skip
    written = _reports(found, markdown, html)
    if json:
        typer.echo(json_module.dumps(found.to_dict(), indent=1))
        return
    from rlinsight.cli.terminal import console
    from rlinsight.report.whatif.text import print_answer

    print_answer(found, console())
    typer.echo("")
    say_written(save, markdown, html)
    typer.echo(f"next: {_next(trace, found, written)}")


def _list(trace: str, calibration: Calibration, save: Path | None, *, as_json: bool) -> None:
    from rlinsight.cli.whatif_answer import knobs_document, listed_knobs

    if as_json:
        typer.echo(json_module.dumps(knobs_document(trace, calibration), indent=1))
        return
    typer.echo(f"{listed_knobs(calibration)}\n")
    say_written(save)
    typer.echo(f"next: rlinsight whatif {quoted(trace)} {_worth_trying(calibration)}")


def _reports(found: Answer, markdown: Path | None, html: Path | None) -> Path | None:
    """Write the asked-for files and return the one to open."""
    if markdown is not None:
        from rlinsight.report.whatif.markdown import markdown as to_markdown

        write(markdown, to_markdown(found))
    if html is not None:
        from rlinsight.report.whatif.html import html as to_html

        write(html, to_html(found))
    return html or markdown


def _next(trace: str, found: Answer, written: Path | None) -> str:
    if written is not None:
        return opening(written)
    if found.sweep is None and found.effect is None:
        return f"rlinsight whatif {quoted(trace)} {_worth_trying(found.calibration)}"
    return f"rlinsight whatif {quoted(trace)} --knobs"


def _worth_trying(calibration: Calibration) -> str:
    """Return the question about the knob that a mode is chosen for."""
    return {
        "fully_async": "--sweep staleness_threshold=0,0.1,0.3,0.5,0.7",
        "separate_async": "--sweep sync_step=1,2,4",
        "colocate_async": "--sweep warm_up_batches=0,1,2",
        "sync": "--set mode=colocate_async --set warm_up_batches=1",
    }[calibration.knobs.mode]
