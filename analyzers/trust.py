"""How far the figures can be trusted: what was not recorded, lost, or left open."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rlinsight.analyzers.device_time.window import MIN_VERSIONS
from rlinsight.analyzers.emulation import emulation
from rlinsight.analyzers.result import PoolReport, Trust, WindowInfo
from rlinsight.analyzers.staleness.lags import trained_in
from rlinsight.analyzers.tables import Tables
from rlinsight.trace.manifest import Manifest
from rlinsight.trace.reader import Trace
from rlinsight.trace.sources import FOREIGN

#: Above this unattributed share of the device time, confidence is lowered.
MAX_UNATTRIBUTED = 0.03
#: Device samplers: a machine has those of its own devices, and no figure rests on them.
_SAMPLERS = "devices."


def trust(
    trace: Trace, tables: Tables, window: tuple[int, int], pools: dict[str, PoolReport]
) -> Trust:
    """Return hook coverage, losses, open intervals, and the recording's own cost.

    hook_share = time inside hooks, summed over processes, / the run's wall time, which on
    emulated devices is another than that of the trace; hook_share_largest has that of the one
    process with most. Worked example: 100 processes with 1 s each in 100 s: 1 and 0.01.
    """
    manifest, spans = trace.manifest, tables.spans
    hooks = manifest.hooks
    emulated = emulation(manifest.notes, tables.requests, tables.counters, spans, window)
    wall_ns = _wall_ns(trace, 1.0 if emulated is None else emulated.time_scale)
    return Trust(
        hooks_installed=sum(hook.installed > 0 for hook in hooks.values()),
        hooks_skipped={
            name: "; ".join(hook.reasons)
            for name, hook in hooks.items()
            if hook.skipped and not hook.installed
        },
        hook_errors={name: hook.errors for name, hook in hooks.items() if hook.errors},
        dropped_rows={table: rows for table, rows in manifest.dropped.items() if rows},
        open_intervals=int(spans["end_ns"].is_null().sum()),
        skipped_files={s.path: s.reason for s in trace.skipped if s.reason != FOREIGN},
        unattributed_ratio=_unattributed(pools),
        hook_seconds=manifest.hook_ns / 1e9 if manifest.processes else None,
        hook_share=_per_wall_time(manifest, manifest.hook_ns, wall_ns),
        hook_share_largest=_per_wall_time(manifest, manifest.largest_hook_ns, wall_ns),
        uncalibrated_lanes=tuple(sorted(trace.uncalibrated_lanes)),
        clock_residual_ns=_clock_residual_ns(manifest),
        unknown_lengths=_unknown_lengths(tables.samples, window),
        remarks=_remarks(manifest, pools),
        emulation=emulated,
    )


def doubts(
    trusted: Trust,
    window: WindowInfo,
    versions: int,
    *,
    exit_code: int | None = None,
    lanes: Sequence[str] | None = None,
) -> list[str]:
    """Return the reasons to doubt the figures, each a sentence.

    `versions` counts the version windows that the figures are of, `exit_code` is the training's,
    `lanes` are those whose devices alone are looked at.
    """
    found = [f"the run ended with exit code {exit_code}"] if exit_code else []
    if lanes is not None:
        found.append(f"only the devices of {', '.join(f'`{lane}`' for lane in lanes)} are counted")
    if versions < MIN_VERSIONS:
        found.append(f"version windows in the figures: {versions} ({window.cut})")
    if trusted.unattributed_ratio is None:
        found.append("no device time was recorded")
    elif trusted.unattributed_ratio > MAX_UNATTRIBUTED:
        found.append(f"{trusted.unattributed_ratio:.1%} of the device time is unattributed")
    if trusted.skipped_files:
        found.append(f"files of the trace that could not be read: {len(trusted.skipped_files)}")
    if trusted.dropped_rows:
        found.append(f"rows dropped while recording: {sum(trusted.dropped_rows.values())}")
    hooks = {name for name in trusted.hooks_skipped if not name.startswith(_SAMPLERS)}
    if hooks | trusted.hook_errors.keys():
        count = len(hooks | trusted.hook_errors.keys())
        found.append(f"hooks that failed or were skipped: {count}")
    if trusted.unknown_lengths:
        found.append(f"trained samples of unknown length: {trusted.unknown_lengths}")
    if trusted.uncalibrated_lanes:
        count = len(trusted.uncalibrated_lanes)
        found.append(f"lanes whose clocks are not calibrated against the others: {count}")
    if trusted.emulation is not None:
        found += trusted.emulation.doubts
    return found


def _unknown_lengths(samples: pl.DataFrame, window: tuple[int, int]) -> int:
    tokens = pl.col("prompt_tokens") + pl.col("response_tokens")
    return trained_in(samples, window).filter(tokens.is_null()).height


def _wall_ns(trace: Trace, scale: float) -> float | None:
    return (trace.time_range[1] - trace.time_range[0]) * scale if trace.time_range else None


def _per_wall_time(manifest: Manifest, hook_ns: int, wall_ns: float | None) -> float | None:
    return hook_ns / wall_ns if manifest.processes and wall_ns else None


def _clock_residual_ns(manifest: Manifest) -> int | None:
    residuals = (manifest.clock.of(node).residual_ns for node in manifest.nodes)
    return max((ns for ns in residuals if ns is not None), default=None)


def _unattributed(pools: dict[str, PoolReport]) -> float | None:
    total = sum(pool.device_seconds for pool in pools.values())
    missing = sum(pool.ledger.get("unattributed", 0.0) for pool in pools.values())
    return missing / total if total else None


def _remarks(manifest: Manifest, pools: dict[str, PoolReport]) -> tuple[str, ...]:
    remarks = []
    if not manifest.topology.devices:
        remarks.append("no device was declared, so device time cannot be accounted for")
    if pools and not manifest.hooks:
        remarks.append("no hook reported itself; the trace was not recorded inside verl")
    return tuple(remarks)
