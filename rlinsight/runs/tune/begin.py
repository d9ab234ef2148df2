"""From a configuration file to a log, new or continued, and the effects of a real tuning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rlinsight.errors import ConfigError, PreflightError, RlinsightError, did_you_mean
from rlinsight.runs import preflight
from rlinsight.runs.prepare import prepare
from rlinsight.runs.profile import load, parse
from rlinsight.runs.settings import require_keys
from rlinsight.runs.tune import child, store
from rlinsight.runs.tune.change import PLACES, place
from rlinsight.runs.tune.judge import judged
from rlinsight.runs.tune.log import Log, Objective, Record
from rlinsight.runs.tune.loop import LOG_FILE, STORY_FILE, Effects, output_of
from rlinsight.runs.tune.measure import measured

#: A run that stands still is ended after so long, where the configuration does not say.
STALL_S = 1800.0


def begun(config: Path, folder: Path, objective: Objective) -> Log:
    """Return the log in `folder`, or a new one of the configuration.

    Raises ConfigError where the log is of another configuration or objective: what was measured
    would not be comparable.
    """
    document = _document(config)
    known = store.load(folder / LOG_FILE)
    if known is None:
        name = str(document.get("name", "run"))
        return Log(name, str(config), str(folder), str(Path.cwd()), objective, document)
    if known.document != document:
        raise ConfigError(
            f"`{config}` is not the configuration that `{folder}` was tuning; give another folder "
            "with `--to`, or the configuration as it was"
        )
    if known.objective != objective:
        raise ConfigError(
            f"`{folder}` tunes for {known.objective} throughput, found `--objective {objective}`; "
            "give another folder with `--to`"
        )
    return known


def _document(config: Path) -> dict[str, Any]:
    """Return the configuration as it stands in the file, once it is known to be one of a run."""
    load(config)
    document: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
    if document.get("smoke"):
        raise ConfigError(f"`{config}` is of a smoke run, which measures nothing")
    document.pop("trace", None)
    return {"stall_timeout_s": STALL_S, **document}


def require_known(document: Mapping[str, Any], held: Sequence[str]) -> None:
    """Refuse a key to hold that there is not: what is misspelt would be changed after all.

    Raises ConfigError naming each such key, with the nearest one.
    """
    asked = [one for one in held if place(one) not in PLACES]
    if not asked:
        return
    prepared = prepare(parse(document))
    prepared.clean_up()
    if prepared.settings.values:
        require_keys(prepared.settings, asked, also=PLACES)


def require_rules(names: Sequence[str]) -> None:
    """Refuse what is no rule whose finding ends a tuning. Raises ConfigError with the nearest."""
    from rlinsight.analyzers.advise import RULES

    known = [rule.name for rule in RULES if rule.mend_first]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"expected a rule that ends a tuning ({', '.join(known)}) after `--despite`, found "
                f"`{name}`"
                f"{did_you_mean(name, known)}"
            )


def refusal(log: Log, document: Mapping[str, Any]) -> str | None:
    """Return why preflight would refuse a configuration, None where it would not.

    Looked at from where the runs are started, and with a trace where theirs go.
    """
    trace = Path(log.folder) / "runs" / "next"
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(log.cwd)
    except OSError as error:
        os.close(here)
        return f"the runs are started in `{log.cwd}`, which cannot be used: {error.strerror}"
    try:
        return _refusal({**document, "trace": str(trace)})
    finally:
        os.fchdir(here)
        os.close(here)


def _refusal(document: Mapping[str, Any]) -> str | None:
    try:
        prepared = prepare(parse(document))
    except RlinsightError as error:
        return str(error)
    try:
        preflight.require(prepared.findings)
    except PreflightError as error:
        return str(error)
    finally:
        prepared.clean_up()
    return None


def effects(log: Log, say: Callable[[str], None]) -> Effects:
    """Return what a real tuning does: subprocesses of `rlinsight run`, and their traces."""
    folder = Path(log.folder)

    def start(profile: Path, record: Record) -> child.Child:
        return child.start(
            profile, record.trace, output_of(folder, record), Path(log.cwd),
            smoke=record.kind == "smoke",
        )  # fmt: skip

    return Effects(
        refusal=partial(refusal, log),
        start=start,
        adopt=lambda record: child.Adopted(record.trace),
        measured=measured,
        judged=judged,
        write=_write,
        say=say,
    )


def _write(log: Log, folder: Path) -> None:
    from rlinsight.report.tune.markdown import markdown

    path = folder / STORY_FILE
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(markdown(log), encoding="utf-8")
    temporary.replace(path)
