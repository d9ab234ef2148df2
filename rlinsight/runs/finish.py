"""After a run: gather, compact, check what was recorded, upload, analyze.

None of it may hide how the training ended: a step that fails is noted, and the next goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rlinsight.errors import RlinsightError
from rlinsight.report.units import counted
from rlinsight.runs.config import RunConfig
from rlinsight.runs.kernel_window import import_windows
from rlinsight.runs.live_state import LiveState
from rlinsight.runs.local_process import tail
from rlinsight.runs.location import upload
from rlinsight.runs.nodes import Nodes
from rlinsight.runs.plan import CONSOLE_FILE
from rlinsight.runs.prepare import Prepared
from rlinsight.runs.supervise import Outcome

if TYPE_CHECKING:
    from rlinsight.analyzers.emulation import Emulation
    from rlinsight.analyzers.result import Report

_CONSOLE_LINES = 15

#: The note of a manifest on how `rlinsight run` ended: its exit code, and the Unix time.
ENDED: Final = "ended"

#: Of the JSON form of a run that is over.
RUN_SCHEMA_VERSION: Final = 1


@dataclass
class Finished:
    """A run that is over. `trace` is what to open next; `notes` are lines for the user.

    `recorded` is false where the trace has neither spans nor requests to look at.
    """

    trace: str
    run_id: str
    outcome: Outcome
    recorded: bool = True
    report: Report | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        outcome = self.outcome
        return {
            "schema_version": RUN_SCHEMA_VERSION,
            "run_id": self.run_id,
            "trace": self.trace,
            "recorded": self.recorded,
            "exit_code": outcome.exit_code,
            "steps": outcome.steps,
            "planned_steps": outcome.planned_steps,
            "wall_s": outcome.wall_s,
            "interrupted_by": outcome.interrupted_by.name if outcome.interrupted_by else None,
            "stalled": outcome.stalled,
            "died": [
                {"lanes": list(d.lanes), "node": d.node, "pid": d.pid, "what": d.what}
                for d in outcome.deaths
            ],
            "notes": self.notes,
            "report": self.report.to_dict() if self.report else None,
        }


def finish(prepared: Prepared, outcome: Outcome, state: LiveState, nodes: Nodes) -> Finished:
    """Put the trace of an ended run in order and analyze it."""
    done = Finished(prepared.location.final, prepared.plan.run_id, outcome)
    done.notes += _ending(prepared, outcome, state)
    with _noted(done):
        _gather(nodes, done)
    with _noted(done):
        done.notes += import_windows(prepared.plan.trace, prepared.plan.run_id)
    with _noted(done):
        _complete_manifest(prepared, outcome, nodes)
        _compact(prepared)
    with _noted(done):
        if state.records or _other_records(prepared):
            done.notes += _missing_lanes(prepared, outcome, state)
            _analyze(prepared, done)
        else:
            done.recorded = False
            done.notes += _nothing_recorded(prepared)
    with _noted(done):
        _upload(prepared, done)
    return done


@contextmanager
def _noted(done: Finished) -> Iterator[None]:
    """Turn what a step raises into a line for the user."""
    try:
        yield
    except RlinsightError as error:
        done.notes.append(str(error))
    except Exception as error:
        first = "".join(str(error).splitlines()[:1])
        done.notes.append(f"the trace is not complete: {type(error).__name__}: {first}")


def _ending(prepared: Prepared, outcome: Outcome, state: LiveState) -> list[str]:
    """Return the lines that say how the run ended, if not well."""
    now_ns = state.clock.now_ns()
    lines = list(outcome.explanation)
    lines += [death.sentence(state.last_events, now_ns) for death in outcome.deaths]
    if outcome.exit_code == 0 and outcome.is_short and outcome.interrupted_by is None:
        lines.append(
            f"the training's exit code is 0, but it logged {outcome.steps or 0} of "
            f"{outcome.planned_steps} steps"
        )
    failed = outcome.exit_code != 0 or outcome.is_broken
    failed = failed and outcome.interrupted_by is None
    if failed and not outcome.stalled:
        output = tail(prepared.plan.trace / CONSOLE_FILE, _CONSOLE_LINES)
        lines.append("the last lines of its output:" if output else "it printed nothing")
        lines += [f"  {line}" for line in output]
    return lines


def _gather(nodes: Nodes, done: Finished) -> None:
    gathered = nodes.finish()
    if gathered is None:
        return
    if gathered.files:
        done.notes.append(
            f"{counted(gathered.files, 'file')} ({gathered.bytes / 2**20:.1f} MiB) gathered from "
            f"{counted(len(gathered.nodes), 'node')}"
        )
    done.notes += [f"not gathered from {n}: {why}" for n, why in gathered.failed.items()]


def _complete_manifest(prepared: Prepared, outcome: Outcome, nodes: Nodes) -> None:
    from rlinsight.trace.manifest import update_manifest

    clock = {"clock": nodes.clocks} if nodes.clocks.nodes else {}
    manifest = update_manifest(
        prepared.plan.trace,
        ended_ns=prepared.plan.clock.now_ns(),
        exit_code=outcome.exit_code,
        **clock,
    )
    # For whoever did not wait for this process: `ended_ns` may be of the clock of emulated devices.
    ended = {"exit_code": outcome.command_exit_code, "at_s": time.time()}
    update_manifest(prepared.plan.trace, notes={**manifest.notes, ENDED: ended})


def _compact(prepared: Prepared) -> None:
    from rlinsight.trace.compact import compact

    compact(prepared.plan.trace)


def _other_records(prepared: Prepared) -> bool:
    """Whether there are records that were not seen live, as those gathered from other nodes."""
    import rlinsight

    trace = rlinsight.open(prepared.plan.trace)
    return any(trace.table(name).head(1).collect().height for name in ("spans", "requests"))


def _nothing_recorded(prepared: Prepared) -> list[str]:
    lines = ["nothing was recorded. Possible causes:"]
    if prepared.plan.module is None:
        lines.append("  the command neither imports verl nor calls rlinsight.span")
        lines.append("  it clears the environment, or its Ray cluster was started earlier")
    lines.append("  it ended before training began; see console.log")
    lines.append("  `rlinsight doctor` says whether verl would load the collectors here")
    return lines


def _missing_lanes(prepared: Prepared, outcome: Outcome, state: LiveState) -> list[str]:
    """Compare the trainer ranks that recorded with those that were asked for."""
    config = prepared.config
    if outcome.exit_code != 0 or prepared.plan.module is None or not isinstance(config, RunConfig):
        return []
    # One process stands for all emulated devices.
    wanted = 1 if config.device == "emulated" else config.resources.trainer.devices
    found = sum(lane.role == "trainer_rank" for lane in state.topology.lanes)
    if found >= wanted:
        return []
    line = (
        f"expected {wanted} trainer ranks in the trace, found {found}: hooks are missing (see "
        "`rlinsight doctor`), or workers of other nodes could not be gathered"
    )
    return [line]


def _analyze(prepared: Prepared, done: Finished) -> None:
    import rlinsight

    try:
        done.report = rlinsight.open(prepared.plan.trace).analyze()
    except Exception as error:  # the training's result must not be lost to an analysis
        reason = str(error).splitlines()[:1]
        done.notes.append(f"no analysis: {type(error).__name__}: {''.join(reason)}")
        return
    emulated = done.report.trust.emulation
    if emulated is not None:
        _note_emulation(prepared, done, emulated)


def _note_emulation(prepared: Prepared, done: Finished, emulated: Emulation) -> None:
    """Say whether the machine kept the time scale, to the user and in the manifest."""
    import rlinsight
    from rlinsight.analyzers.document import plain_value
    from rlinsight.trace.manifest import update_manifest

    done.notes += [emulated.sentence(), *emulated.doubts]
    folder = prepared.plan.trace
    notes = rlinsight.open(folder).manifest.notes
    update_manifest(folder, notes={**notes, "emulated_trust": plain_value(emulated)})


def _upload(prepared: Prepared, done: Finished) -> None:
    if prepared.location.url is None:
        return
    try:
        upload(prepared.location)
    except RlinsightError as error:
        done.notes.append(str(error))
        done.trace = str(prepared.location.folder)
