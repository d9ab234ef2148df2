"""`rlinsight baseline`."""

from __future__ import annotations

import json as json_module
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rlinsight.cli.shell import quoted

if TYPE_CHECKING:
    from rlinsight.baselines.record import Record

LIST_SCHEMA_VERSION: Final = 1

baseline = typer.Typer(
    help="Keep the runs that `rlinsight check` compares with.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@baseline.command()
def add(
    trace: Annotated[
        str, typer.Argument(help="A trace folder or fsspec URL, or the JSON figures of benchmarks.")
    ],
    *,
    to: Annotated[str, typer.Option("--to", help="Folder or fsspec URL to keep it in.")],
    name: Annotated[str | None, typer.Option(help="Its name there. Default: the run id.")] = None,
    note: Annotated[str, typer.Option(help="Why it is accepted; kept with it.")] = "",
    untrusted: Annotated[
        bool, typer.Option("--untrusted", help="Keep it, and do not compare with it.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a run of the same name.")
    ] = False,
) -> None:
    """Accept a run: store what the gate needs of it, as one small JSON file.

    One accepted run is enough for a check; with more, their spread is known, too.
    """
    from rlinsight.analyzers.gate.identity import identity_key
    from rlinsight.baselines.record import Record
    from rlinsight.baselines.store import Store, record_name
    from rlinsight.cli.gating import lacking, observed

    run = observed(trace)
    now = datetime.now(timezone.utc)
    record = Record(
        name=name or record_name(run.run_id, now.strftime("%Y%m%d-%H%M%S")),
        key=identity_key(run.identity),
        added=now.isoformat(timespec="seconds"),
        trusted=not untrusted,
        note=note,
        observation=run.to_dict(),
    )
    where = Store(to).add(record, replace_it=replace)
    typer.echo(f"accepted {record.name} (identity {record.key}) as {where}")
    for line in lacking(run):
        typer.echo(f"it lacks {line}")
    typer.echo(f"next: rlinsight check TRACE --baseline {quoted(to)}")


@baseline.command("list")
def list_(
    folder: Annotated[str, typer.Argument(help="Folder or fsspec URL of the accepted runs.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show the runs of a baseline, the latest first, those of one identity together."""
    from rlinsight.baselines.store import Store

    records = Store(folder).records()
    if json:
        document = {
            "schema_version": LIST_SCHEMA_VERSION,
            "baseline": folder,
            "runs": [_summary(record) for record in records],
        }
        typer.echo(json_module.dumps(document, indent=1))
        return
    from rlinsight.cli.terminal import unbounded
    from rlinsight.report.check.listing import baseline_table
    from rlinsight.report.plain import line
    from rlinsight.report.units import counted

    console = unbounded()
    for key in dict.fromkeys(record.key for record in records):
        console.print(baseline_table(key, [_summary(r) for r in records if r.key == key]))
        console.print()
    trusted = sum(record.trusted for record in records)
    typer.echo(f"{line(folder)}: {counted(len(records), 'run')}, {trusted} trusted")
    if records:
        typer.echo(f"next: rlinsight check --baseline {quoted(folder)} --history trend.html")
    else:
        typer.echo(f"next: rlinsight baseline add TRACE --to {quoted(folder)}")


@baseline.command()
def trust(
    name: Annotated[str, typer.Argument(help="Name of a run, as `baseline list` shows it.")],
    folder: Annotated[str, typer.Argument(help="Folder or fsspec URL of the accepted runs.")],
    *,
    off: Annotated[
        bool, typer.Option("--off", help="Do not compare with it any more; it stays in sight.")
    ] = False,
    note: Annotated[str | None, typer.Option(help="Why; kept with it.")] = None,
) -> None:
    """Make a run count, or, with `--off`, no longer count, as a reference."""
    from rlinsight.baselines.store import Store

    record = Store(folder).trust(name, trusted=not off, note=note)
    state = "trusted" if record.trusted else "not trusted"
    typer.echo(f"{name} is {state}\nnext: rlinsight baseline list {quoted(folder)}")


@baseline.command()
def drop(
    name: Annotated[str, typer.Argument(help="Name of a run, as `baseline list` shows it.")],
    folder: Annotated[str, typer.Argument(help="Folder or fsspec URL of the accepted runs.")],
) -> None:
    """Delete a run from a baseline."""
    from rlinsight.baselines.store import Store

    Store(folder).drop(name)
    typer.echo(f"dropped {name}\nnext: rlinsight baseline list {quoted(folder)}")


def _summary(record: Record) -> dict[str, object]:
    """Return a run as `baseline list` shows it; numbers are None where unknown."""
    from rlinsight.analyzers.gate.metrics import metrics
    from rlinsight.cli.gating import stored_observation

    run = stored_observation(record)
    known = {name: m.series.value for name, m in metrics(run).items() if m.series is not None}
    values = {name: known.get(name) for name in ("tokens_per_s_per_device", "step_time_s")}
    return {
        "name": record.name,
        "key": record.key,
        "trusted": record.trusted,
        "recorded_ns": run.recorded_ns,
        "added": record.added,
        "windows": run.count,
        **values,
        "mode": run.identity.get("mode"),
        "model": run.identity.get("config.actor_rollout_ref.model.path"),
        "note": record.note,
    }
