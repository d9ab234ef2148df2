"""What ran, in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.units import counted, number, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Estimate, Report


def header_lines(report: Report) -> list[tuple[str, str]]:
    """Return (name, value) of the run header."""
    run, window, rate = report.run, report.window, report.throughput
    kinds = ", ".join(run.device_kinds) or "kind unknown"
    devices = run.trainer_devices + run.rollout_devices
    versions = "unknown" if window.versions is None else "{} to {}".format(*window.versions)
    lines = [
        ("run", (run.run_id or "(unnamed)") + ("  [smoke run]" if run.smoke else "")),
        ("mode", f"{run.mode or 'unknown'}, engine {run.engine or 'unknown'}"),
        (
            "devices",
            f"{run.trainer_devices} trainer + {run.rollout_devices} rollout ({kinds}), "
            f"nodes {run.nodes}; replicas: {run.standalone_replicas} standalone, "
            f"{run.hybrid_replicas} hybrid, {run.colocated_replicas} colocated",
        ),
        (
            "recorded",
            f"{seconds(run.duration_s)}; figures over {seconds(window.duration_s)} ({window.cut})",
        ),
        ("versions", versions),
        (
            "throughput",
            f"{_estimate(rate.tokens_per_s_per_device, 'tokens/s/device')}, "
            f"{_estimate(rate.samples_per_s, 'samples/s')} "
            f"(trained; prompt + response tokens; {counted(devices, 'device')})",
        ),
    ]
    if run.exit_code:
        lines.append(("ended", f"the training failed with exit code {run.exit_code}"))
    if run.smoke:
        lines.append(("note", "a smoke run checks the plumbing; what it learns means nothing"))
    if report.metrics_only is not None:
        lines.append(("note", report.metrics_only.source))
    return lines


def _estimate(estimate: Estimate, unit: str) -> str:
    if estimate.low is None or estimate.high is None:
        return number(estimate.value, unit)
    spread = f"[{number(estimate.low)}, {number(estimate.high)}]"
    return f"{number(estimate.value)} {spread} {unit}"
