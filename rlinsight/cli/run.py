"""`rlinsight run`."""

from __future__ import annotations

import json as json_module
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rlinsight.cli.shell import again, quoted
from rlinsight.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from rlinsight.runs.config import RecordingConfig
    from rlinsight.runs.finish import Finished
    from rlinsight.runs.prepare import Prepared
    from rlinsight.runs.supervise import Display


PLAN_SCHEMA_VERSION: Final = 1


def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After `--`: a command of your own to record instead of verl's."),
    ] = None,
    *,
    profile: Annotated[
        Path | None, typer.Option("--profile", "-p", help="The run's YAML; see docs/run.md.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Plumbing check: 8 prompts x 4 responses, at most 3 steps."),
    ] = False,
    trace: Annotated[
        str | None, typer.Option(help="Trace folder or fsspec URL, instead of the profile's.")
    ] = None,
    stall_timeout: Annotated[
        float | None, typer.Option(help="End the run after this many seconds without progress.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Stop after preflight and print what would be started.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the YAML and stop.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Launch a training run, or wrap a command that launches one, and record it.

    Says everything that would fail before it starts anything. Ctrl-C ends the run and all it
    started; a second one does so at once. The exit code is the training's.
    """
    if schema:
        from rlinsight.runs.config import json_schema

        typer.echo(json_module.dumps(json_schema(), indent=1))
        return
    if trace == "":
        raise ConfigError("expected a folder or URL as `--trace`, found an empty text")
    given = {"smoke": smoke or None, "trace": trace, "stall_timeout_s": stall_timeout}
    config = _config(profile, command or [], {k: v for k, v in given.items() if v is not None})
    following = again(context, without="check") if check else None
    _run(config, command or [], following, as_json=json)


def _config(profile: Path | None, command: list[str], given: dict[str, Any]) -> RecordingConfig:
    from rlinsight.runs.profile import load, load_recording, with_options

    if profile is None and not command:
        raise ConfigError(
            "nothing to run: give `--profile config.yaml`, or `-- command`, or both; "
            "docs/run.md explains the file"
        )
    if command and "smoke" in given:
        raise ConfigError("`--smoke` changes batch sizes, which a wrapped command sets itself")
    base = (load_recording if command else load)(profile) if profile else None
    return with_options(base, given)


def _run(
    config: RecordingConfig, command: list[str], following: str | None, *, as_json: bool
) -> None:
    """Start the run; where a command is to follow this one, only say what would be started."""
    from rlinsight.cli import terminal
    from rlinsight.runs import preflight
    from rlinsight.runs.launch import launch
    from rlinsight.runs.prepare import prepare

    # The JSON result has standard output to itself.
    console = terminal.console(stderr=as_json, highlight=False)
    prepared = prepare(config, command)
    try:
        _say_warnings(prepared, console)
        preflight.require(prepared.findings)
        if following is not None:
            _show_plan(prepared, following, as_json=as_json)
            return
        _announce(prepared, console)
        finished = launch(prepared, lambda path: _display(prepared, path, console))
    finally:
        prepared.clean_up()
    _show(finished, prepared, console, as_json=as_json)
    raise typer.Exit(finished.outcome.command_exit_code)


def _say_warnings(prepared: Prepared, console: Console) -> None:
    for finding in prepared.findings:
        if finding.severity == "warning":
            line = f"warning: {finding.check}: {finding.message}"
            console.print(line, markup=False, soft_wrap=True)


def _announce(prepared: Prepared, console: Console) -> None:
    if prepared.is_smoke:
        console.print("smoke run: a plumbing check, its learning results mean nothing")
    console.print(f"recording into {prepared.location.final}", markup=False, soft_wrap=True)
    if prepared.kernel_bytes:
        size = f"{prepared.kernel_bytes / 2**20:.1f} MiB"
        console.print(f"kernel window: about {size} of profiles, slower while it collects")


def _show_plan(prepared: Prepared, following: str, *, as_json: bool) -> None:
    plan = prepared.plan
    if as_json:
        document = {
            "schema_version": PLAN_SCHEMA_VERSION,
            "command": list(plan.command),
            "trace": prepared.location.final,
            "findings": [vars(finding) for finding in prepared.findings],
        }
        typer.echo(json_module.dumps(document, indent=1))
        return
    typer.echo(plan.shell_line())
    typer.echo(f"preflight passed; the trace would be {prepared.location.final}")
    typer.echo(f"next: {following}")


@contextmanager
def _display(prepared: Prepared, console_log: Path, console: Console) -> Iterator[Display]:
    from rlinsight.runs.progress import Echo, Progress

    if prepared.plan.module is None:
        with Echo(console, console_log) as echo:
            yield echo
        return
    steps = prepared.total_steps
    with Progress(console, total_steps=steps, console_log=console_log) as progress:
        yield progress


def _show(finished: Finished, prepared: Prepared, console: Console, *, as_json: bool) -> None:
    from rlinsight.report.plain import line
    from rlinsight.report.text import print_report
    from rlinsight.runs.progress import duration

    for said in finished.notes:
        console.print(line(said), markup=False, soft_wrap=True)
    if as_json:
        typer.echo(json_module.dumps(finished.to_dict(), indent=1))
        return
    if finished.report is not None:
        print_report(finished.report, console)
    label = " (smoke run)" if prepared.is_smoke else ""
    took = duration(finished.outcome.wall_s)
    typer.echo(f"{line(finished.outcome.sentence())} after {took}{label}: {finished.trace}")
    typer.echo(f"next: rlinsight {_next(finished)}")


def _next(finished: Finished) -> str:
    """Return the command that has something to say about the trace as it is."""
    if not finished.recorded:
        return "doctor"
    verb = "validate" if finished.report is None else "analyze"
    return f"{verb} {quoted(finished.trace)}"
