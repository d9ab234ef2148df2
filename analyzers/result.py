"""The typed result of an analysis; every renderer works on these objects and nothing else.

Times are seconds unless the name ends in `_ns`; ratios are within 0 to 1 unless the data
say otherwise (nothing is clamped); None is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

    from rlinsight.analyzers.device_time.bubbles import Bubbles
    from rlinsight.analyzers.device_time.overlap import OutsideSteps, Overlap, RunAhead
    from rlinsight.analyzers.device_time.per_window import VersionRow
    from rlinsight.analyzers.devices.report import DeviceReport
    from rlinsight.analyzers.emulation import Emulation
    from rlinsight.analyzers.engines.balance import Balance
    from rlinsight.analyzers.engines.slots import SlotUse
    from rlinsight.analyzers.framework.defects import Defect
    from rlinsight.analyzers.framework.idle_figures import IdleFigures
    from rlinsight.analyzers.framework.metrics_only import MetricsOnly
    from rlinsight.analyzers.health.liveness import Liveness
    from rlinsight.analyzers.lengths.growth import StepGrowth
    from rlinsight.analyzers.lengths.statistics import Lengths
    from rlinsight.analyzers.quality.guard import Quality
    from rlinsight.analyzers.staleness.coverage import Coverage
    from rlinsight.analyzers.staleness.lags import Staleness
    from rlinsight.analyzers.staleness.tokens import TokenAccount
    from rlinsight.analyzers.sync.stages import SyncReport
    from rlinsight.analyzers.verdict import Verdict

REPORT_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class RunHeader:
    """What ran. Hybrid and colocated replicas live on trainer devices, standalone ones do not.

    `started_ns` and `duration_s` are from the first to the last recorded row; `smoke` marks a
    run that only checked the plumbing. `exit_code` is the training's, None while it runs or
    where nobody saw it end.
    """

    run_id: str | None
    mode: str | None
    engine: str | None
    device_kinds: tuple[str, ...]
    trainer_devices: int
    rollout_devices: int
    standalone_replicas: int
    hybrid_replicas: int
    colocated_replicas: int
    nodes: int
    started_ns: int | None
    duration_s: float | None
    smoke: bool
    exit_code: int | None


@dataclass(frozen=True)
class WindowInfo:
    """The part of the run that the figures are of, and why that part (`cut`).

    `versions` are the first and the last parameter version live in it, None where no weight
    sync was recorded.
    """

    start_ns: int
    end_ns: int
    duration_s: float
    versions: tuple[int, int] | None
    cut: str


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; the interval is None where there are too few windows."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Throughput:
    """Trained work per time, over all devices of the job."""

    tokens_per_s_per_device: Estimate
    samples_per_s: Estimate
    trained_tokens: int | None
    trained_samples: int | None


@dataclass(frozen=True)
class FrameworkFigure:
    """What the framework itself reported, and why it may differ from the intervals."""

    key: str
    value: float | None
    meaning: str


@dataclass(frozen=True)
class PoolReport:
    """Where the device time of a pool went; `ledger` sums to `device_seconds` exactly.

    `framework_idle_ratio` is verl's own figure for the same window (the first of
    `framework_figures`); None where verl logs none, or where what it times is generation on
    these very devices.
    """

    devices: int
    device_seconds: float
    useful_seconds: float
    overhead_seconds: float
    bubble_seconds: float
    idle_ratio: float | None
    unattributed_ratio: float | None
    ledger: dict[str, float]
    framework_idle_ratio: float | None
    framework_figures: tuple[FrameworkFigure, ...]
    slot_utilization: float | None = None


@dataclass(frozen=True)
class ActivityTime:
    """One activity on the lanes of one role, over the whole run.

    `lane_seconds` is the wall time in which at least one span ran, summed over lanes;
    `mean_s` is the mean duration of a closed span. `span_seconds_in_window` is of the window
    alone: the parts of all spans that lie in it, summed, those beside each other too.
    """

    role: str
    activity: str
    lanes: int
    spans: int
    open_spans: int
    lane_seconds: float
    mean_s: float | None
    span_seconds_in_window: float


@dataclass(frozen=True)
class StepRow:
    """One training step of the driver; activities may overlap and need not sum to the step."""

    step: int | None
    param_version: int | None
    start_ns: int
    duration_s: float
    activities: dict[str, float]
    tokens: int | None
    samples: int | None


@dataclass(frozen=True)
class Trust:
    """What lowers the confidence in the figures.

    `hook_seconds` is the time spent inside hooks, summed over processes, `hook_share` that per
    wall time of the run, `hook_share_largest` that of the process with most: processes run beside
    each other, so that is what recording may have slowed the run by. `clock_residual_ns` is the
    largest error of a clock that was compared with the reference, None where none was.
    `unknown_lengths` are trained samples of the window without a length, which are taken to be as
    long as the others. `emulation` is set for a run on emulated devices.
    """

    hooks_installed: int
    hooks_skipped: dict[str, str]
    hook_errors: dict[str, int]
    dropped_rows: dict[str, int]
    open_intervals: int
    skipped_files: dict[str, str]
    unattributed_ratio: float | None
    hook_seconds: float | None
    hook_share: float | None
    hook_share_largest: float | None
    uncalibrated_lanes: tuple[str, ...]
    clock_residual_ns: int | None
    unknown_lengths: int
    remarks: tuple[str, ...] = ()
    emulation: Emulation | None = None


@dataclass(frozen=True)
class Report:
    """The result of `rlinsight.open(path).analyze()`; `docs/analysis.md` defines every figure.

    Parts are None where nothing they need was recorded. `metrics_only` is set for a trace
    without devices, which holds nothing but what the framework logged. `segments` is the
    ledger over time (device, state, start_ns, end_ns), for drawing.
    """

    run: RunHeader
    window: WindowInfo
    liveness: Liveness
    verdict: Verdict
    throughput: Throughput
    pools: dict[str, PoolReport]
    bubbles: Bubbles
    versions: tuple[VersionRow, ...]
    overlap: Overlap | None
    slots: SlotUse
    run_ahead: RunAhead | None
    outside_steps: OutsideSteps | None
    staleness: Staleness
    tokens: TokenAccount | None
    coverage: Coverage
    lengths: Lengths
    balance: Balance
    devices: DeviceReport | None
    sync: SyncReport | None
    quality: Quality
    defects: tuple[Defect, ...]
    idle_figures: IdleFigures | None
    metrics_only: MetricsOnly | None
    activities: tuple[ActivityTime, ...]
    steps: tuple[StepRow, ...]
    step_growth: StepGrowth
    trust: Trust
    segments: pl.DataFrame = field(repr=False, compare=False)
    schema_version: int = field(default=REPORT_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `rlinsight analyze --json`; see docs/analysis.md."""
        from rlinsight.analyzers.document import document

        return document(self)

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        from importlib import import_module

        # The renderers are beyond what an analyzer may import; a notebook has them anyway.
        rendered: str = import_module("rlinsight.report.html").fragment(self)
        return rendered
