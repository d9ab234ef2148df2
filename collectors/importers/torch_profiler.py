"""Kernel windows: what PyTorch's profiler saw of one stage of one rank, brought into the trace.

Of each file the trace gets the window (marker `kernel_window`), the kernels that took most time
(markers `kernel_top`) and how busy the device was over time (counter `kernel_busy_ratio`, every
100 ms, beside what the driver reports). The files themselves stay where they are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rlinsight.collectors.importers.chrome_trace import Event, read_events
from rlinsight.collectors.importers.intervals import (
    Interval,
    clipped,
    length,
    overlap,
    shares,
    union,
)
from rlinsight.errors import TraceError

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_kernel"})
_COMMUNICATION: Final = re.compile(r"nccl|rccl|hccl|allreduce|all_reduce|reducescatter", re.I)
_TOP: Final = 15
_NAME_CHARS: Final = 120
_BUSY_STEP_NS: Final = 100_000_000
#: `<worker>_<stage>_step<N>_rank<r>-of-<world>_pid<p>_<time>.json.gz`, as verl names them; verl
#: 0.9.1 has hyphens within worker and stage, others had underscores.
_NAME: Final = re.compile(
    r"(?P<stage>[\w-]+?)(?:_step(?P<step>\d+))?_rank(?P<rank>\d+)(?:-of-\d+)?(?:_|-|\.)"
)
#: A file of a replica's engine, where verl's rollout profiler was on too.
_ENGINE: Final = re.compile(r"rollout-replica(\d+)")
_STAGES: Final = (
    "actor_compute_log_prob",
    "ref_compute_log_prob",
    "actor_update",
    "train_batch",
)

Source = Literal["device", "host"]


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel (or operator) inside the window; `total_ns` sums their times."""

    name: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class KernelWindow:
    """One stage as the profiler saw it.

    `busy_ns` is the union over streams of everything that ran on the device;
    `communication_ns` the union of collectives, `exposed_communication_ns` the part of it in
    which nothing else ran. `longest_gap_ns` is the longest time nothing ran. A profile without
    device rows (a CPU run) has `source` `host`: then outermost operators count as busy.
    """

    role: str
    step: int | None
    rank: int | None
    lane: str
    source: Source
    start_ns: int
    end_ns: int
    busy_ns: int
    communication_ns: int
    exposed_communication_ns: int
    launches: int
    longest_gap_ns: int
    file: str
    top: tuple[Kernel, ...]
    busy: tuple[tuple[int, float], ...]


def read_window(path: Path) -> KernelWindow:
    """Return what one file of the profiler says. Raises TraceError for a file without events."""
    events, header = read_events(path)
    role, step, rank = _named(path.name)
    rank = header.get("distributedInfo", {}).get("rank", rank)
    engine = _ENGINE.match(path.name)
    work, source = _work(events)
    if not work:
        raise TraceError(f"`{path.name}` holds no kernel and no operator")
    window = _window(events, role, work)
    busy = clipped(union((e.start_ns, e.end_ns) for e in work), window)
    collectives = clipped(union(_spans(work, collective=True)), window)
    compute = clipped(union(_spans(work, collective=False)), window)
    return KernelWindow(
        role=role,
        step=step,
        rank=rank,
        lane=f"replica{engine[1]}" if engine else f"trainer/rank{rank or 0}",
        source=source,
        start_ns=window[0],
        end_ns=window[1],
        busy_ns=length(busy),
        communication_ns=length(collectives),
        exposed_communication_ns=length(collectives) - overlap(collectives, compute),
        launches=len(work),
        longest_gap_ns=_longest_gap(busy, window),
        file=path.name,
        top=_top(work),
        busy=tuple(shares(busy, window, _BUSY_STEP_NS)),
    )


def import_folder(folder: Path, writer: TraceWriter) -> list[str]:
    """Bring every file of `folder` into the trace; return a line for each that could not be."""
    problems = []
    for path in sorted(folder.rglob("*.json*")):
        try:
            _write(read_window(path), writer)
        except TraceError as error:
            problems.append(str(error))
    return problems


def _write(window: KernelWindow, writer: TraceWriter) -> None:
    lane = window.lane
    left_out = {"top", "busy", "lane"}
    attrs: dict[str, Any] = {k: v for k, v in asdict(window).items() if k not in left_out}
    known = {key: value for key, value in attrs.items() if value is not None}
    writer.marker("kernel_window", lane=lane, ts_ns=window.start_ns, attrs=known)
    for kernel in window.top:
        named = {"role": window.role, "step": window.step, **asdict(kernel)}
        writer.marker("kernel_top", lane=lane, ts_ns=window.start_ns, attrs=named)
    for end_ns, share in window.busy:
        writer.counter("kernel_busy_ratio", share, lane=lane, ts_ns=end_ns)


def _named(name: str) -> tuple[str, int | None, int | None]:
    match = _NAME.match(name)
    if _ENGINE.match(name):
        return "generate", None, None
    if match is None:
        return name.split(".")[0], None, None
    stage = match["stage"].replace("-", "_")
    role = next((known for known in _STAGES if stage.endswith(known)), stage)
    step = match["step"]
    return role, None if step is None else int(step), int(match["rank"])


def _work(events: Sequence[Event]) -> tuple[list[Event], Source]:
    device = [event for event in events if event.category in _DEVICE]
    return (device, "device") if device else (_outermost(events), "host")


def _outermost(events: Sequence[Event]) -> list[Event]:
    """Return the operators that no other operator of their thread encloses."""
    found: list[Event] = []
    ends: dict[tuple[str, str], int] = {}
    operators = [event for event in events if event.category == "cpu_op"]
    for event in sorted(operators, key=lambda e: (e.start_ns, -e.end_ns)):
        if event.start_ns >= ends.get(event.row, 0):
            ends[event.row] = event.end_ns
            found.append(event)
    return found


def _window(events: Sequence[Event], role: str, work: Sequence[Event]) -> Interval:
    """Return the stage's own annotation, on the host; else from the first work to the last.

    The host may leave the annotation before the device is done: what runs until then counts.
    """
    marks = [e for e in events if e.category == "user_annotation" and e.name == role]
    first = min(event.start_ns for event in marks or work)
    return first, max(event.end_ns for event in (*marks, *work))


def _spans(work: Iterable[Event], *, collective: bool) -> Iterable[Interval]:
    return (
        (e.start_ns, e.end_ns) for e in work if bool(_COMMUNICATION.search(e.name)) is collective
    )


def _longest_gap(busy: Sequence[Interval], window: Interval) -> int:
    edges = [window[0], *(edge for interval in busy for edge in interval), window[1]]
    return max(end - start for start, end in zip(edges[::2], edges[1::2], strict=True))


def _top(work: Iterable[Event]) -> tuple[Kernel, ...]:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for event in work:
        entry = totals[event.name]
        entry[0] += 1
        entry[1] += event.end_ns - event.start_ns
    kernels = [Kernel(name[:_NAME_CHARS], n, ns) for name, (n, ns) in totals.items()]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.total_ns)[:_TOP])
