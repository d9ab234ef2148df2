"""The loop: decide, carry it out, note it; from the beginning, or from where it was cut off."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import yaml

from rlinsight.errors import ConfigError, PreflightError
from rlinsight.runs.tune import store
from rlinsight.runs.tune.again import taken_up
from rlinsight.runs.tune.change import afresh
from rlinsight.runs.tune.child import Ended
from rlinsight.runs.tune.decide import Action, Skip, Start, Stop, decide
from rlinsight.runs.tune.findings import refused
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import (
    Decision,
    Judged,
    Log,
    Measured,
    Objective,
    Record,
    Skipped,
)

if TYPE_CHECKING:
    from rlinsight.analyzers.advise.finding import Aim

LOG_FILE: Final = "tuning.json"
STORY_FILE: Final = "tuning.md"
BEST_FILE: Final = "best.yaml"


class Waiting(Protocol):
    """A run that goes on, or that has ended meanwhile."""

    def wait(self) -> Ended:
        """Wait for its end."""


@dataclass(frozen=True)
class Effects:
    """What the loop does to the world, so that a test can do something else.

    `refusal` says why preflight would refuse a configuration, None where it would not; `start`
    begins the run of a profile, `adopt` takes over one of an earlier loop; `write` renders the log.
    """

    refusal: Callable[[dict[str, Any]], str | None]
    start: Callable[[Path, Record], Waiting]
    adopt: Callable[[Record], Waiting]
    measured: Callable[[str, int | None, Objective], Measured]
    judged: Callable[[str, str, Objective, Aim], Judged]
    write: Callable[[Log, Path], None]
    say: Callable[[str], None]


def tune(log: Log, limits: Limits, effects: Effects) -> Log:
    """Go on until there is nothing left to do, and return the log, which is on disk as well."""
    loop = _Loop(taken_up(log, limits), limits, effects)
    loop.write_best()
    loop.finish_open()
    while True:
        action = decide(loop.log, limits)
        if isinstance(action, Stop):
            loop.note(replace(loop.log, stopped=action.reason))
            return loop.log
        loop.carry_out(action)


class _Loop:
    def __init__(self, log: Log, limits: Limits, effects: Effects) -> None:
        self.log, self._limits, self._do = log, limits, effects
        self._folder = Path(log.folder)

    def note(self, log: Log) -> None:
        """Make `log` the state, on disk first; then tell the story."""
        store.save(log, self._folder / LOG_FILE)
        self.log = log
        self._do.write(log, self._folder)

    def carry_out(self, action: Action) -> None:
        if isinstance(action, Skip):
            self._skip(action.skipped)
        elif isinstance(action, Start):
            refusal = self._do.refusal(dict(action.document))
            if refusal is None:
                self._run(action)
            elif action.candidate is None:
                raise PreflightError(refusal)
            else:
                self._skip(refused(action.candidate, action.beside, refusal))

    def _skip(self, skipped: Skipped) -> None:
        self._do.say(f"left out: {skipped.rule} ({skipped.change or 'no override'})"
                     f": {skipped.reason}")  # fmt: skip
        self.note(replace(self.log, skipped=(*self.log.skipped, skipped)))

    def _run(self, start: Start) -> None:
        number = len(self.log.records)
        record = Record(
            number=number,
            kind=start.kind,
            document=dict(start.document),
            trace=str(self._folder / "runs" / f"{number:02d}"),
            began_s=time.time(),
            beside=start.beside,
            candidate=start.candidate,
        )
        self._do.say(f"run {number}: {_purpose(record)}")
        profile = self._profile(record)
        # Noted before it starts: a run that nobody knows of would be repeated beside itself.
        self.note(replace(self.log, records=(*self.log.records, record)))
        self._wait(record, self._do.start(profile, record))

    def _profile(self, record: Record) -> Path:
        path = self._folder / "configs" / f"{record.number:02d}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        (self._folder / "runs").mkdir(exist_ok=True)
        text = yaml.safe_dump(afresh(record.document), sort_keys=False)
        path.write_text(text, encoding="utf-8")
        return path

    def finish_open(self) -> None:
        """Deal with a run that was begun and not decided on: wait for it, use it, or repeat it."""
        record = self.log.open
        if record is None:
            return
        self._do.say(f"run {record.number} was begun earlier: looking what became of it")
        self._wait(record, self._do.adopt(record))

    def _wait(self, record: Record, child: Waiting) -> None:
        try:
            ended = child.wait()
        except KeyboardInterrupt:
            self._end(record, "interrupted", "it was interrupted, and is repeated")
            raise
        ended_s = record.began_s if ended.at_s is None else ended.at_s
        record = replace(record, exit_code=ended.exit_code, ended_s=ended_s)
        if ended.exit_code is None:
            self._end(record, "interrupted", "it was cut off before its end, and is repeated")
        else:
            self._decide(record)

    def _decide(self, record: Record) -> None:
        if record.kind == "smoke":
            self._of_smoke(record)
            return
        shown = self._do.measured(record.trace, record.exit_code, self.log.objective)
        record = replace(record, measured=shown)
        if shown.problem is not None:
            failed: Decision = "failed" if record.kind == "baseline" else "reverted"
            self._end(record, failed, shown.problem)
        elif record.kind == "baseline":
            self._end(record, "kept", "what the experiments are compared with")
        else:
            self._of_experiment(record)

    def _of_smoke(self, record: Record) -> None:
        failed = record.exit_code != 0
        output = output_of(self._folder, record)
        reason = f"exit code {record.exit_code}; see {output}" if failed else ""
        self._end(record, "failed" if failed else "passed", reason)

    def _of_experiment(self, record: Record) -> None:
        beside = self.log.record(record.beside)
        if beside is None:
            raise ConfigError(f"the log names run {record.beside}, which it does not hold")
        assert record.candidate is not None
        aim = record.candidate.aim
        found = self._do.judged(beside.trace, record.trace, self.log.objective, aim)
        decision, reason = verdict_on(found)
        self._end(replace(record, judged=found), decision, reason)

    def _end(self, record: Record, decision: Decision, reason: str) -> None:
        ended_s = record.ended_s or time.time()
        record = replace(record, decision=decision, reason=reason, ended_s=ended_s)
        self._replace(record)
        self._do.say(f"run {record.number}: {decision}{f': {reason}' if reason else ''}")
        if decision == "kept":
            self.write_best()

    def write_best(self) -> None:
        """Write the configuration that is kept: a loop may be killed after it noted it."""
        kept = self.log.kept
        if kept is None:
            return
        path = self._folder / BEST_FILE
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(yaml.safe_dump(kept.document, sort_keys=False), encoding="utf-8")
        temporary.replace(path)

    def _replace(self, record: Record) -> None:
        self.note(replace(self.log, records=(*self.log.records[:-1], record)))


def output_of(folder: Path, record: Record) -> Path:
    """Return the file that a run's output goes to."""
    return folder / "runs" / f"{record.number:02d}.log"


def verdict_on(found: Judged) -> tuple[Decision, str]:
    """Return whether an experiment is kept, and why: only what it is for, at no cost in quality.

    Where two settings are as good, the one that was there stays: every change has a risk.
    """
    if found.losses:
        return "reverted", f"it cost quality: {'; '.join(found.losses)}"
    if found.real == "better":
        return "kept", found.reason
    if found.real is None:
        return "reverted", f"it cannot be judged: {found.reason}"
    return "reverted", found.reason


def _purpose(record: Record) -> str:
    if record.candidate is None:
        return record.kind
    return f"{record.candidate.rule}: {record.candidate.change}"
