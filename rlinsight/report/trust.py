"""How far the figures can be trusted, as a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.section import Section
from rlinsight.report.units import count, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.emulation import Emulation
    from rlinsight.analyzers.result import Report


def trust(report: Report) -> Section:
    """Return how far the figures can be trusted."""
    found = report.trust
    rows = [
        ("hooks", f"{found.hooks_installed} installed"),
        ("unattributed device time", percent(found.unattributed_ratio)),
        (
            "time inside hooks",
            f"{seconds(found.hook_seconds)} over all processes, {percent(found.hook_share)} of the "
            f"wall time; {percent(found.hook_share_largest)} in the process with most",
        ),
        *((f"hook skipped: {name}", why) for name, why in found.hooks_skipped.items()),
        *((f"hook failed: {name}", f"{n} times") for name, n in found.hook_errors.items()),
        *((f"rows dropped: {name}", count(n)) for name, n in found.dropped_rows.items()),
        *((f"not read: {path}", why) for path, why in found.skipped_files.items()),
        *(("clock not calibrated", lane) for lane in found.uncalibrated_lanes),
        *_clock(found.clock_residual_ns),
        *_lengths(found.unknown_lengths),
        *_emulation(found.emulation),
        *(("remark", remark) for remark in found.remarks),
    ]
    if found.open_intervals:
        rows.append(("begun and never ended", f"{found.open_intervals} intervals"))
    return Section("Trust", ("what", "found"), tuple(rows))


def _emulation(emulation: Emulation | None) -> list[tuple[str, str]]:
    if emulation is None:
        return []
    doubts = [("outside the trustworthy range", doubt) for doubt in emulation.doubts]
    return [("emulated", emulation.sentence()), *doubts]


def _lengths(unknown: int) -> list[tuple[str, str]]:
    told = f"{count(unknown)} trained samples, taken to be as long as the others"
    return [("length not known", told)] if unknown else []


def _clock(residual_ns: int | None) -> list[tuple[str, str]]:
    return [] if residual_ns is None else [("clocks agree within", seconds(residual_ns / 1e9))]
