"""`rlinsight check`."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlinsight.cli.files import say_written, write
from rlinsight.cli.shell import quoted
from rlinsight.errors import ConfigError, RlinsightError

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.observation import Observation
    from rlinsight.analyzers.gate.result import CheckResult
    from rlinsight.baselines.config import CheckConfig


def check(
    trace: Annotated[
        str | None,
        typer.Argument(
            help="A trace folder or fsspec URL, or the JSON figures of benchmarks; optional with "
            "--history."
        ),
    ] = None,
    *,
    baseline: Annotated[
        str | None, typer.Option(help="Folder or fsspec URL of the accepted runs.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="How to judge, as YAML; see docs/check.md.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Key of the identity (pattern) that may differ; repeatable."),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Report, and exit with 0 all the same.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    result: Annotated[
        Path | None, typer.Option("--result", help="Also write the result as JSON.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write Markdown, the body of a comment.")
    ] = None,
    gitlab: Annotated[
        Path | None, typer.Option(help="Also write a GitLab code-quality report.")
    ] = None,
    github: Annotated[
        bool,
        typer.Option("--github", help="Also annotate, and write the step summary of GitHub."),
    ] = False,
    history: Annotated[
        Path | None, typer.Option(help="Also write the trend of the baseline as one HTML file.")
    ] = None,
) -> None:
    """Compare a run with the runs that were accepted before it, and fail on a regression.

    Every metric is PASS, FAIL, ERROR (missing, not a number, too few windows) or INACTIVE
    (no trusted history). Exit code 0 pass, 1 regression, 2 what cannot be read or compared.
    """
    from rlinsight.baselines.config import load

    chosen = load(config)
    place = chosen.baseline if baseline is None else baseline
    if place is None:
        raise ConfigError("nothing to compare with: give `--baseline FOLDER`")
    if trace is None:
        from rlinsight.cli.check_history import only_history

        _need_a_trace(result=result, junit=junit, markdown=markdown, gitlab=gitlab)
        only_history(place, chosen, history, as_json=json)
        return
    found, run, error = _result(trace, place, chosen, ignore or [], shadow=shadow or chosen.shadow)
    files = {
        "result": result, "junit": junit, "markdown": markdown, "gitlab": gitlab,
        "history": history,
    }  # fmt: skip
    for kind, path in files.items():
        if path is not None:
            write(path, _rendered(kind, found, run, place, chosen, config))
    if github:
        _annotate(found, to_stderr=json)
    if json:
        typer.echo(_as_json(found))
    if error is not None:
        raise error
    if not json:
        _print(found, trace, place, [path for path in files.values() if path is not None])
    raise typer.Exit(found.exit_code)


def _need_a_trace(**files: Path | None) -> None:
    for name, path in files.items():
        if path is not None:
            raise ConfigError(f"nothing to check: `--{name}` needs a trace, which was not given")


def _result(
    trace: str, place: str, config: CheckConfig, ignore: list[str], *, shadow: bool
) -> tuple[CheckResult, Observation | None, RlinsightError | None]:
    """Return the result, the run if it could be read, and the error where there is no verdict."""
    from rlinsight.analyzers.gate.check import check as judge
    from rlinsight.analyzers.gate.result import unusable
    from rlinsight.baselines.store import Store
    from rlinsight.cli.gating import choose_history, observed, refuse_unknown, settings_of

    run, settings = None, settings_of(config)
    try:
        run = observed(trace)
        records = Store(place).records()
        refuse_unknown(records, run, settings, ignore)
        found = choose_history(records, run, settings, [*config.ignore, *ignore], place)
    except RlinsightError as error:
        name = Path(trace).name if run is None else run.run_id
        return unusable(name, str(error), shadow=shadow), run, error
    today = datetime.now(timezone.utc).date()
    result = judge(run, found.runs, settings, today, found.excluded, found.ignored)
    return replace(result, shadow=shadow), run, None


def _rendered(
    kind: str,
    result: CheckResult,
    run: Observation | None,
    place: str,
    config: CheckConfig,
    config_path: Path | None,
) -> str:
    if kind == "junit":
        from rlinsight.report.check.junit import junit

        return junit(result)
    if kind == "markdown":
        from rlinsight.report.check.markdown import markdown

        return markdown(result)
    if kind == "gitlab":
        from rlinsight.report.check.gitlab import gitlab

        return gitlab(result, str(config_path or "check.yaml"))
    if kind == "history":
        from rlinsight.cli.check_history import history

        return history(place, config, run, result)
    return _as_json(result) + "\n"


def _as_json(result: CheckResult) -> str:
    return json_module.dumps(result.to_dict(), indent=1, allow_nan=False)


def _annotate(result: CheckResult, *, to_stderr: bool) -> None:
    """Standard output holds nothing but the result when that is JSON."""
    from rlinsight.report.check.github import commands, write_summary

    write_summary(result)
    for line in commands(result):
        typer.echo(line, err=to_stderr)


def _print(result: CheckResult, trace: str, place: str, written: Sequence[Path]) -> None:
    from rlinsight.cli.terminal import unbounded
    from rlinsight.report.check.terminal import print_check
    from rlinsight.report.check.words import headline
    from rlinsight.report.plain import line

    print_check(result, unbounded())
    typer.echo("")
    say_written(*written)
    typer.echo(f"{line(headline(result))}\nnext: {_next(result, trace, place)}")


def _next(result: CheckResult, trace: str, place: str) -> str:
    from rlinsight.cli.gating import is_kept

    run, folder = quoted(trace), quoted(place)
    if result.verdict in ("FAIL", "ERROR"):
        is_run = result.run_id is not None
        return f"rlinsight analyze {run}" if is_run else f"rlinsight baseline list {folder}"
    if is_kept(result.run_id, place):
        return f"rlinsight baseline list {folder}"
    return f"rlinsight baseline add {run} --to {folder}"
