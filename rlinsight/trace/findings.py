"""From the facts about a trace to what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rlinsight.trace.clock import MAX_RESIDUAL_NS
from rlinsight.trace.sources import FOREIGN
from rlinsight.trace.validation import Clock, Finding, Validation

#: Time inside hooks, as a share of the run's wall time, above which recording disturbs it.
#: Twice what `benchmarks/record.py` allows: hooks are timed by the wall clock and summed over
#: all processes, so that on an overloaded machine their time includes waiting for a core.
MAX_HOOK_SHARE: Final = 0.01

#: Every kind of finding, and what it means. Documented in docs/trace.md.
FINDING_KINDS: Final = {
    "dead_lane": "a process fell silent before the others without ending its recording",
    "skipped_file": "a file, or a part of one, is damaged, cut or may not be read",
    "dropped_rows": "writers had to drop rows: buffer full, disk full, value not storable",
    "backward_times": "rows end before they begin",
    "overlap": "a lane that does one thing at a time did two",
    "undeclared_lane": "rows name a lane that the topology does not have",
    "unknown_name": "a name outside its closed list",
    "requests_not_conserved": "requests ended without a known reason",
    "samples_not_conserved": "samples have a fate but were never seen produced",
    "uncalibrated_clock": "a node's clock is not known well enough to compare its lanes",
    "hook_failure": "a hook raised while it recorded",
    "hook_overhead": "hooks of one process took more than the allowed share of the wall time",
}


def find(facts: Validation) -> Iterator[Finding]:
    """Yield the defects, the gravest first."""
    for dead in facts.dead:
        lanes = ", ".join(f"`{lane}`" for lane in dead.lanes) or "a process without lane"
        yield Finding(
            "dead_lane",
            f"{lanes} ({dead.node}, pid {dead.pid}) died: its last sign of life came "
            f"{dead.silent_s:.1f} s before that of others",
        )
    for path, reason in facts.skipped.items():
        if reason != FOREIGN:
            yield Finding("skipped_file", f"{path}: {reason}")
    for name, table in facts.tables.items():
        if table.dropped:
            yield Finding("dropped_rows", f"{table.dropped} rows of `{name}` were dropped")
    for name, rows in facts.backward_rows.items():
        yield Finding("backward_times", f"{rows} rows of `{name}` end before they begin")
    for overlap in facts.overlaps:
        yield Finding(
            "overlap",
            f"lane `{overlap.lane}`: {overlap.spans} spans overlap an earlier one by "
            f"{overlap.overlap_ns / 1e9:.3f} s in total, the first {overlap.example}",
        )
    undeclared = [f"`{lane.id}`" for lane in facts.lanes if lane.role is None]
    if undeclared:
        yield Finding(
            "undeclared_lane",
            f"lanes never declared, so that nothing is known of their devices: "
            f"{', '.join(undeclared)}; name them in the recording's `topology`",
        )
    yield from _name_findings(facts)
    yield from _conservation_findings(facts)
    yield from _recording_findings(facts)


def _name_findings(facts: Validation) -> Iterator[Finding]:
    for column, names in facts.unknown_names.items():
        unknown = [f"`{name}`" for name in names if not str(name).startswith("other:")]
        if unknown:
            yield Finding("unknown_name", f"`{column}` holds {', '.join(unknown)}")


def _conservation_findings(facts: Validation) -> Iterator[Finding]:
    requests, samples = facts.requests, facts.samples
    if requests.unknown:
        yield Finding(
            "requests_not_conserved",
            f"{requests.submitted} requests submitted = {requests.finished} finished + "
            f"{requests.aborted} aborted + {requests.in_flight} in flight + "
            f"{requests.unknown} that ended without a known reason",
        )
    if samples.unproduced:
        yield Finding(
            "samples_not_conserved",
            f"{samples.unproduced} of {samples.samples} samples have a fate but no recorded "
            f"production",
        )


def _recording_findings(facts: Validation) -> Iterator[Finding]:
    for clock in facts.clocks:
        if not clock.calibrated:
            yield Finding("uncalibrated_clock", _clock_message(clock))
    for name, hook in facts.hooks.items():
        if hook.failed:
            reason = f": {hook.reasons[0]}" if hook.reasons else ""
            where = "1 process" if hook.failed == 1 else f"{hook.failed} processes"
            yield Finding("hook_failure", f"hook `{name}` raised in {where}{reason}")
    share = facts.hook_share_largest
    if share is not None and share > MAX_HOOK_SHARE:
        yield Finding(
            "hook_overhead",
            f"hooks of one process took {share:.2%} of the wall time, more than "
            f"{MAX_HOOK_SHARE:.1%}",
        )


def _clock_message(clock: Clock) -> str:
    if clock.residual_ns is None:
        return f"the clock of node `{clock.node}` was never compared with the reference"
    return (
        f"the clock of node `{clock.node}` is known to {clock.residual_ns / 1e6:.1f} ms, worse "
        f"than {MAX_RESIDUAL_NS / 1e6:.0f} ms; its lanes must not be compared with others"
    )


def note(facts: Validation) -> Iterator[str]:
    """Yield what is worth knowing and no defect."""
    if facts.is_live:
        yield "not compacted: the run lives, or ended without compaction"
    if facts.open_spans:
        yield f"{facts.open_spans} spans were begun and never ended"
    if facts.requests.in_flight:
        yield f"{facts.requests.in_flight} requests were in flight at the end"
    others = facts.unknown_names.get("spans.activity", {})
    kept = [f"`{name}`" for name in others if str(name).startswith("other:")]
    if kept:
        yield f"activities outside the vocabulary: {', '.join(kept)}"
    skipped = [name for name, hook in facts.hooks.items() if hook.skipped and not hook.installed]
    if skipped:
        what = "1 hook" if len(skipped) == 1 else f"{len(skipped)} hooks"
        yield f"{what} not installed: {', '.join(skipped)}"
    idle = [f"`{lane.id}`" for lane in facts.lanes if lane.rows == 0]
    if idle:
        yield f"lanes declared of which nothing was recorded: {', '.join(idle)}"
    foreign = [path for path, reason in facts.skipped.items() if reason == FOREIGN]
    if foreign:
        yield f"not files of a trace: {', '.join(foreign)}"
    if not facts.processes:
        yield "no process file: drops, hooks and deaths are not known"
