"""`rlinsight tune`."""

from __future__ import annotations

import json as json_module
import math
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlinsight.cli.shell import again, quoted
from rlinsight.errors import ConfigError
from rlinsight.report.plain import line

if TYPE_CHECKING:
    from rlinsight.runs.tune.limits import Limits
    from rlinsight.runs.tune.log import Log


def tune(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The run's YAML; see docs/run.md.")],
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the log, runs and configurations. Default: tuning/FILE, the name of "
            "the YAML without .yaml."
        ),
    ] = None,
    objective: Annotated[
        Literal["per-device", "wall-clock"],
        typer.Option(
            help="What is to rise: throughput per device (tokens/s), or of the job (samples/s)."
        ),
    ] = "per-device",
    max_runs: Annotated[
        int, typer.Option(min=1, help="Runs of full size at most, the baseline is one.")
    ] = 8,
    max_hours: Annotated[
        float | None, typer.Option(help="Hours of runs at most, above 0. Default: no limit.")
    ] = None,
    patience: Annotated[
        int, typer.Option(min=1, help="Experiments in a row that may gain nothing.")
    ] = 3,
    allow_quality_risk: Annotated[
        bool,
        typer.Option("--allow-quality-risk", help="Also try what may cost training quality."),
    ] = False,
    hold: Annotated[
        list[str] | None,
        typer.Option(help="Key or section that no experiment may change; repeatable."),
    ] = None,
    despite: Annotated[
        list[str] | None,
        typer.Option(help="Rule whose finding is no reason to stop; repeatable."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke/--no-smoke", help="Check the plumbing first.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done next, and stop.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the log as JSON.")] = False,
) -> None:
    """Tune a run by experiments: measure, change one thing, measure again, keep it or not.

    A smoke run, a baseline, then one finding of the advisor at a time, the cheapest kind first. A
    change stays only if its gain is real and no quality was lost. Ends at a plateau, the quality
    guard, the budget, or what is to be mended first. Everything is in `tuning.md` and
    `tuning.json`; the same command again goes on where it was cut off, and makes again what failed
    at the start. docs/tune.md explains the decisions.
    """
    from rlinsight.runs.tune.begin import begun, effects, require_known, require_rules
    from rlinsight.runs.tune.limits import Limits
    from rlinsight.runs.tune.lock import alone
    from rlinsight.runs.tune.loop import tune as loop

    _require_hours(max_hours)
    folder = (to or Path("tuning") / config.stem).absolute()
    log = begun(config, folder, objective)
    held, passed = tuple(hold or ()), tuple(despite or ())
    require_known(log.document, held)
    require_rules(passed)
    limits = Limits(max_runs, max_hours, patience, allow_quality_risk, smoke, held, passed)
    if dry_run:
        _plan(log, limits, again(context, without="dry_run"), as_json=json)
        return
    # A run is ended in order by `kill` as by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def say(said: str) -> None:
        # The JSON result has standard output to itself.
        typer.echo(line(said), err=json)

    with alone(folder, say):
        # Another loop may have ended since the log was read.
        log = begun(config, folder, objective)
        log = loop(log, limits, effects(log, say))
    _show(log, as_json=json)
    raise typer.Exit(_exit_code(log, limits))


def _require_hours(hours: float | None) -> None:
    if hours is not None and not 0 < hours < math.inf:
        raise ConfigError(f"expected hours above 0 after `--max-hours`, found {hours:g}")


def _plan(log: Log, limits: Limits, following: str, *, as_json: bool) -> None:
    from rlinsight.report.tune.plan import plan
    from rlinsight.runs.tune.begin import refusal

    found = plan(log, limits, partial(refusal, log))
    if as_json:
        typer.echo(json_module.dumps(found.to_dict(), indent=1))
        return
    for said in found.lines:
        typer.echo(line(said))
    typer.echo(f"next: {following}")


def _show(log: Log, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_module.dumps(log.to_dict(), indent=1))
        return
    from rlinsight.cli.terminal import console
    from rlinsight.report.tune.text import print_log

    typer.echo("")
    print_log(log, console())
    best = Path(log.folder) / "best.yaml"
    if log.kept is not None:
        typer.echo(f"\nthe story: {Path(log.folder) / 'tuning.md'}")
        typer.echo(f"next: rlinsight run --profile {quoted(best)}")


def _exit_code(log: Log, limits: Limits) -> int:
    """1 where there was nothing to tune, something to mend or quality lost, as for a failed run."""
    from rlinsight.runs.tune.decide import Stop, decide

    action = decide(log, limits)
    return int(isinstance(action, Stop) and action.failed)
