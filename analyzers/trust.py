"""How far the figures can be trusted: what was not recorded, lost, or left open."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.result import PoolReport, Trust
from rlinsight.trace.manifest import Manifest
from rlinsight.trace.reader import Trace


def trust(trace: Trace, spans: pl.DataFrame, pools: dict[str, PoolReport]) -> Trust:
    """Return hook coverage, losses, open intervals, and the recording's own cost.

    hook_share = time inside hooks, summed over processes, / the run's wall time.
    """
    manifest = trace.manifest
    hooks = manifest.hooks
    wall_ns = _wall_ns(trace)
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
        skipped_files={skipped.path: skipped.reason for skipped in trace.skipped},
        unattributed_ratio=_unattributed(pools),
        hook_seconds=manifest.hook_ns / 1e9 if manifest.processes else None,
        hook_share=manifest.hook_ns / wall_ns if manifest.processes and wall_ns else None,
        dead_lanes=_dead_lanes(trace),
        remarks=_remarks(manifest, pools),
    )


def _wall_ns(trace: Trace) -> int | None:
    return trace.time_range[1] - trace.time_range[0] if trace.time_range else None


def _unattributed(pools: dict[str, PoolReport]) -> float | None:
    total = sum(pool.device_seconds for pool in pools.values())
    missing = sum(pool.ledger.get("unattributed", 0.0) for pool in pools.values())
    return missing / total if total else None


def _dead_lanes(trace: Trace) -> dict[str, str]:
    return {}  # TODO


def _remarks(manifest: Manifest, pools: dict[str, PoolReport]) -> tuple[str, ...]:
    remarks = []
    if not manifest.topology.devices:
        remarks.append("no device was declared, so device time cannot be accounted for")
    if pools and not manifest.hooks:
        remarks.append("no hook reported itself; the trace was not recorded inside verl")
    return tuple(remarks)
