"""`rlinsight advise`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlinsight.cli.files import say_written, write
from rlinsight.cli.shell import quoted
from rlinsight.errors import ConfigError, TraceError, unknown
from rlinsight.report.plain import line

if TYPE_CHECKING:
    from rlinsight.analyzers.advise import Advice, Case


def advise(
    trace: Annotated[
        str | None, typer.Argument(help="A trace folder, or an fsspec URL of one.")
    ] = None,
    *,
    objective: Annotated[
        Literal["per-device", "wall-clock"],
        typer.Option(help="What a change is to raise: throughput per device, or of the job."),
    ] = "per-device",
    seeds: Annotated[
        int, typer.Option(min=2, max=1_000, help="Simulated runs per setting; noise needs two.")
    ] = 5,
    explain: Annotated[
        str | None, typer.Option(help="Say what this rule asks, when it fires, and stop.")
    ] = None,
    why_not: Annotated[
        bool, typer.Option("--why-not", help="Also say what the other rules saw.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the advice as Markdown.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say what to change in a recorded run, by how much it helps, and how to tell.

    Findings are ordered by what a change costs; each has its evidence with time windows, the
    exact override, the simulated effect, the risk, and what would show that it was wrong. A run
    that stands still gets no advice. docs/advisor.md lists the rules.
    """
    if explain is not None:
        if markdown is not None:
            raise ConfigError("`--explain` gives no advice to write: drop `--markdown`")
        _explain(explain, trace, as_json=json)
        return
    if trace is None:
        raise ConfigError("expected a trace to advise on, or `--explain RULE`")
    from rlinsight.analyzers.advise import advise as asked

    case = _case(trace, wall_clock=objective == "wall-clock", seeds=seeds)
    advice = asked(case)
    if markdown is not None:
        from rlinsight.report.advise.markdown import markdown as to_markdown

        write(markdown, to_markdown(Path(trace).name, advice))
    if json:
        typer.echo(json_module.dumps(advice.to_dict(), indent=1))
        return
    from rlinsight.cli.terminal import console
    from rlinsight.report.advise.text import print_advice

    typer.echo(f"objective: {objective} throughput")
    print_advice(advice, console(), why_not=why_not)
    typer.echo("")
    say_written(markdown)
    typer.echo(f"next: {_next(trace, advice, case)}")


def _next(trace: str, advice: Advice, case: Case) -> str:
    """Return the question about the first finding, where the simulator can answer it."""
    changes = advice.first.changes if advice.first else {}
    try:
        if case.knobs is None or not changes:
            return f"rlinsight analyze {quoted(trace)}"
        case.knobs.changed(changes)
    except ConfigError:
        return f"rlinsight analyze {quoted(trace)}"
    wanted = " ".join(f"--set {quoted(f'{name}={value}')}" for name, value in changes.items())
    return f"rlinsight whatif {quoted(trace)} {wanted}"


def _case(trace: str, *, wall_clock: bool, seeds: int) -> Case:
    """Return the case of a trace; without a calibration where it does not allow one."""
    import rlinsight
    from rlinsight.analyzers.advise import Case
    from rlinsight.analyzers.simulate import Calibration

    opened = rlinsight.open(trace)
    report = opened.analyze()
    calibration = None
    try:
        calibration = Calibration.from_report(opened, report)
    except (TraceError, ConfigError) as error:
        typer.echo(line(f"no effects are predicted: {error}"), err=True)
    return Case(
        report, opened.manifest.config, calibration, wall_clock, range(seeds), opened.topology
    )


def _explain(name: str, trace: str | None, *, as_json: bool) -> None:
    from rlinsight.analyzers.advise import RULES
    from rlinsight.report.advise.lines import catalogue, rule_document

    by_name = {rule.name: rule for rule in RULES}
    if name not in by_name:
        raise ConfigError(unknown("a rule", name, by_name))
    if as_json:
        typer.echo(json_module.dumps(rule_document(by_name[name]), indent=1))
        return
    typer.echo(name)
    for part, text in catalogue(by_name[name]):
        typer.echo(f"{part:<11} {text}")
    place = "TRACE" if trace is None else quoted(trace)
    typer.echo(f"\nnext: rlinsight advise {place} --why-not")
