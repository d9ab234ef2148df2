"""What `check` and `baseline` share: reading a run or figures, and choosing its history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlinsight.errors import BaselineError, ConfigError, TraceError

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.observation import Observation
    from rlinsight.analyzers.gate.settings import Settings
    from rlinsight.baselines.config import CheckConfig
    from rlinsight.baselines.record import Record

#: How many differing keys a refusal lists.
_LISTED = 12


@dataclass(frozen=True)
class History:
    """The runs to compare with, latest first, and those that are left out, with the reason."""

    runs: dict[str, Observation]
    excluded: dict[str, str]
    ignored: tuple[str, ...]


def observed(path: str) -> Observation:
    """Return the observation of a trace (folder or URL) or of figures (a file, or their folder).

    Raises TraceError for what is neither.
    """
    import rlinsight
    from rlinsight.analyzers.gate.observe import observe

    files = _figure_files(path)
    return observe(rlinsight.open(path)) if files is None else _figures(files)


def _figure_files(path: str) -> list[Path] | None:
    """Return the files of figures that `path` stands for, None where it is a trace."""
    if not path or "://" in path:
        return None
    from rlinsight.trace.files import is_trace_folder

    place = Path(path)
    if place.is_file():
        return [place]
    return None if is_trace_folder(place) else sorted(place.glob("*.json")) or None


def _figures(files: Sequence[Path]) -> Observation:
    from rlinsight.analyzers.gate.figures import figures_observation

    try:
        documents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        newest = max(file.stat().st_mtime_ns for file in files)
        return figures_observation(documents, newest)
    except (OSError, ValueError) as error:
        names = ", ".join(f"`{file}`" for file in files)
        raise TraceError(
            f"expected a trace folder, or figures that a benchmark printed as JSON, found {names}: "
            f"{error}"
        ) from error


def lacking(run: Observation) -> list[str]:
    """Return what a run cannot be a reference for, and why."""
    from rlinsight.analyzers.gate.metrics import metrics
    from rlinsight.analyzers.gate.settings import Settings

    found = [f"{name}: {m.why}" for name, m in metrics(run).items() if m.series is None]
    fewest = Settings().min_windows
    if run.source == "trace" and run.count < fewest:
        found.append(f"steady windows: {run.count}, and a check needs {fewest} by default")
    return found


def is_kept(run_id: str | None, where: str) -> bool:
    """Whether a baseline has a run of this id, or of the name that it would get."""
    from rlinsight.baselines.store import Store, record_name

    if run_id is None:
        return False
    records = Store(where).records()
    return any(
        run_id == record.observation.get("run_id") or record.name == record_name(run_id, "")
        for record in records
    )


def settings_of(config: CheckConfig) -> Settings:
    """Return the settings of the gate that a configuration stands for."""
    from rlinsight.analyzers.gate.settings import Acknowledged, MetricSettings, Settings

    return Settings(
        alpha=config.alpha,
        correction=config.correction,
        history=config.history,
        min_windows=config.min_windows,
        run_to_run=config.run_to_run,
        max_extrapolation=config.max_extrapolation,
        metrics={k: MetricSettings(**m.model_dump()) for k, m in config.metrics.items()},
        acknowledged=tuple(Acknowledged(**a.model_dump()) for a in config.acknowledged),
    )


def refuse_unknown(
    records: Sequence[Record], run: Observation, settings: Settings, ignore: Sequence[str]
) -> None:
    """Raise ConfigError for metrics of the configuration and keys of `--ignore` that nobody has."""
    from rlinsight.analyzers.gate.names import unknown_keys, unknown_metrics

    kept = [stored_observation(record) for record in records]
    problems = unknown_metrics(run, kept, settings)
    problems += unknown_keys(ignore, [run.identity, *(one.identity for one in kept)])
    if problems:
        raise ConfigError("\n".join(problems))


def choose_history(
    records: Sequence[Record],
    run: Observation,
    settings: Settings,
    ignore: Sequence[str],
    where: str,
) -> History:
    """Return the trusted runs of the same identity, latest first.

    Raises BaselineError, naming the keys, where runs are there and none has the identity of
    `run`; keys that one of the patterns `ignore` is of need not agree.
    """
    from rlinsight.analyzers.gate.identity import differing

    same = [r for r in records if not differing(r.identity, run.identity, ignore)]
    if records and not same:
        raise BaselineError(_refusal(records, run, ignore, where))
    trusted = [record for record in same if record.trusted]
    excluded = {r.name: f"not trusted{_note(r)}" for r in same if not r.trusted}
    chosen = {r.name: stored_observation(r) for r in trusted[: settings.history]}
    ignored = {key for r in trusted for key in differing(r.identity, run.identity)}
    return History(chosen, excluded, tuple(sorted(ignored)))


def _note(record: Record) -> str:
    return f": {record.note}" if record.note else ""


def stored_observation(record: Record) -> Observation:
    """Return the observation of an accepted run. Raises BaselineError for a damaged one."""
    from rlinsight.analyzers.gate.observation import Observation

    try:
        return Observation.from_dict(record.observation)
    except ValueError as error:
        raise BaselineError(f"cannot use the baseline `{record.name}`: {error}") from error


def _refusal(records: Sequence[Record], run: Observation, ignore: Sequence[str], where: str) -> str:
    """Name the keys that differ from the most similar run."""
    from rlinsight.analyzers.gate.identity import differing

    by_run = {r.name: differing(r.identity, run.identity, ignore) for r in records}
    nearest = min(by_run, key=lambda name: len(by_run[name]))
    keys = by_run[nearest]
    listed = [f"  {key}: {_pair(values)}" for key, values in list(keys.items())[:_LISTED]]
    more = [f"  and {len(keys) - _LISTED} more"] if len(keys) > _LISTED else []
    return "\n".join(
        [
            f"no run of `{where}` can be compared with this one; beside the most similar, "
            f"`{nearest}`, these keys differ (baseline -> this run):",
            *listed,
            *more,
            "`--ignore KEY` compares all the same, `rlinsight baseline add` begins a history of "
            "its own",
        ]
    )


def _pair(values: tuple[str | None, str | None]) -> str:
    before, after = ("absent" if value is None else f"`{value}`" for value in values)
    return f"{before} -> {after}"
