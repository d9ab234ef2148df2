"""`rlinsight compare`."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlinsight.cli.files import say_written, write
from rlinsight.cli.shell import opening, quoted
from rlinsight.errors import RlinsightError

if TYPE_CHECKING:
    from rlinsight.analyzers.compare.entrant import Entrant
    from rlinsight.analyzers.compare.result import Comparison


def compare(
    traces: Annotated[
        list[str],
        typer.Argument(help="Trace folders or fsspec URLs; a folder of traces stands for them."),
    ],
    *,
    reference: Annotated[
        str | None, typer.Option(help="The run that the others are compared with. Default: first.")
    ] = None,
    knob: Annotated[
        str | None,
        typer.Option(help="Key of the varied number, where runs differ in more than one."),
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="How often noise may pass for a difference.")
    ] = 0.05,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the comparison as Markdown.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the comparison as one HTML file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Put runs side by side: what was set differently, and which differences are real.

    Runs are compared over the training steps that all have in their steady windows, and at equal
    response length. Runs that vary one number also get its response curve, with the plateau from
    which on more of it gains nothing. docs/compare.md has the definitions.
    """
    from dataclasses import replace

    from rlinsight.analyzers.compare.compare import SETTINGS
    from rlinsight.analyzers.compare.compare import compare as compared

    entrants, excluded = _entrants(traces)
    if len(entrants) < 2:
        raise RlinsightError(_too_few(entrants, excluded, traces))
    found = compared(
        entrants, reference=reference, knob=knob, excluded=excluded,
        settings=replace(SETTINGS, alpha=alpha),
    )  # fmt: skip
    written = _reports(found, markdown, html)
    if json:
        typer.echo(json_module.dumps(found.to_dict(), indent=1, allow_nan=False))
        return
    from rlinsight.cli.terminal import console
    from rlinsight.report.compare.text import print_comparison

    print_comparison(found, console())
    typer.echo("")
    say_written(markdown, html)
    typer.echo(f"next: {_next(found, traces, written)}")


def _entrants(given: Sequence[str]) -> tuple[list[Entrant], dict[str, str]]:
    """Return the runs that can be compared, and the others with the reason."""
    import rlinsight
    from rlinsight.analyzers.compare.entrant import entrant

    found: list[Entrant] = []
    excluded: dict[str, str] = {}
    for name, place in _named(_places(given)).items():
        try:
            found.append(entrant(name, rlinsight.open(place)))
        except RlinsightError as error:
            excluded[name] = str(error)
    return found, excluded


def _places(given: Sequence[str]) -> list[str]:
    """Return the traces that the arguments stand for, each once."""
    from rlinsight.trace.files import is_trace_folder

    found: dict[str, str] = {}
    for text in given:
        folder = Path(text)
        if not text or "://" in text or not folder.is_dir() or is_trace_folder(folder):
            inner = []
        else:
            inner = [str(one) for one in sorted(folder.iterdir()) if is_trace_folder(one)]
        for place in inner or [text]:
            found.setdefault(_same(place), place)
    return list(found.values())


def _same(place: str) -> str:
    """Return what two ways to write one place have in common."""
    return place.rstrip("/") if "://" in place or not place else str(Path(place).resolve())


def _named(places: Sequence[str]) -> dict[str, str]:
    """Return name -> place; the last part of the path, or as much of it as tells runs apart."""
    for depth in range(1, 1 + max((place.count("/") for place in places), default=0) + 1):
        names = ["/".join(place.rstrip("/").split("/")[-depth:]) for place in places]
        if len(set(names)) == len(names):
            return dict(zip(names, places, strict=True))
    return {place: place for place in places}


def _too_few(found: Sequence[Entrant], excluded: dict[str, str], given: Sequence[str]) -> str:
    what = f"found {len(found)} that can be used"
    if found and len(given) > 1 and not excluded:
        what = f"found the same run given twice, `{found[0].name}`"
    lines = [f"expected two runs or more to compare, {what}; name another run, or a folder of runs"]
    return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in excluded.items())])


def _reports(found: Comparison, markdown: Path | None, html: Path | None) -> Path | None:
    """Write the asked-for files and return the one to open."""
    if markdown is not None:
        from rlinsight.report.compare.markdown import markdown as to_markdown

        write(markdown, to_markdown(found))
    if html is not None:
        from rlinsight.report.compare.html import html as to_html

        write(html, to_html(found))
    return html or markdown


def _next(found: Comparison, given: Sequence[str], written: Path | None) -> str:
    if written is not None:
        return opening(written)
    by_name = _named(_places(given))
    row = found.row("tokens_per_s_per_device")
    rates = {} if row is None else {
        run.name: cell.value
        for run, cell in zip(found.runs, row.cells, strict=True)
        if cell is not None and cell.value is not None
    }  # fmt: skip
    best = max(rates, key=lambda name: rates[name], default=found.reference)
    return f"rlinsight advise {quoted(by_name[best])}"
