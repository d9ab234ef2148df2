"""What stands still, and the last thing each lane did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.section import Section
from rlinsight.report.units import seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report

_MAX_LANES = 40


def alarms(report: Report) -> Section:
    """Return every alarm, the most specific first."""
    rows = tuple(
        (alarm.kind, alarm.lane, seconds(alarm.for_s), seconds(alarm.limit_s), alarm.sentence)
        for alarm in report.liveness.alarms
    )
    return Section("Alarms", ("alarm", "lane", "for", "tolerated", "what"), rows)


def last_events(report: Report) -> Section:
    """Return the last event of each lane, the longest silent first; empty without an alarm."""
    events = report.liveness.last_events if report.liveness.alarms else ()
    start = report.run.started_ns or 0
    rows = tuple(
        (event.lane, f"{(event.ts_ns - start) / 1e9:.3f} s", event.what)
        for event in events[:_MAX_LANES]
    )
    note = f"the first {len(rows)} of {len(events)} lanes" if len(rows) < len(events) else ""
    return Section("Last event of each lane", ("lane", "at", "event"), rows, note)
