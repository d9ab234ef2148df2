"""What recording costs: in the calling thread, on disk, and inside a real run.

Peers in the same run: the OpenTelemetry SDK (span with batch processor and a no-op
exporter, counter) and a bare append of a tuple to a list.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import Figure, median_ns, report
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import rlinsight
from rlinsight.trace.writer import TraceWriter

ROUNDS, CALLS = 9, 20_000
SUSTAINED_SPANS = 3_000_000
SAMPLES = Path(__file__).parent.parent / "sample_traces"


class NullExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        return SpanExportResult.SUCCESS


def our_span() -> None:
    with rlinsight.span("update_actor", step=3, param_version=2):
        pass


def our_counter() -> None:
    rlinsight.counter("queue_depth", 12.0)


def our_request(writer: TraceWriter) -> Callable[[], None]:
    def record() -> None:
        writer.begin_request(
            request_id="0a1b2c3d", lane="replica0", engine_kind="standalone", prompt_tokens=60,
            version_start=3, attempt=0, validate=False,
        ).end(response_tokens=200, version_end=3, finish="stop")  # fmt: skip

    return record


def otel_span() -> Callable[[], None]:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    tracer = provider.get_tracer("bench")

    def record() -> None:
        with tracer.start_as_current_span("update_actor", attributes={"step": 3, "version": 2}):
            pass

    return record


def bare_append() -> Callable[[], None]:
    rows: list[tuple[int, int, str]] = []
    clock = time.monotonic_ns

    def record() -> None:
        start = clock()
        rows.append((start, clock(), "update_actor"))

    return record


def costs(folder: Path) -> dict[str, float]:
    """Return the median cost of each call in ns: the median of rounds taken in turn."""
    with rlinsight.recording(folder, lane="trainer") as writer:
        calls = {
            "span": our_span,
            "counter": our_counter,
            "request": our_request(writer),
            "OpenTelemetry SDK span": otel_span(),
            "bare list append": bare_append(),
        }
        rounds = [{n: median_ns(call, CALLS) for n, call in calls.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in rounds) for name in calls}


def sustained(folder: Path) -> tuple[float, float, int]:
    """Return spans/s from one process to disk, bytes per span, and rows dropped."""
    began = time.perf_counter()
    with rlinsight.recording(folder, lane="trainer") as writer:
        for _ in range(SUSTAINED_SPANS):
            with rlinsight.span("update_actor", step=3, param_version=2):
                pass
    rate = SUSTAINED_SPANS / (time.perf_counter() - began)
    size = sum(f.stat().st_size for f in (folder / "live").glob("spans-*"))
    return rate, size / SUSTAINED_SPANS, writer.spans.dropped


def hook_shares() -> dict[str, float]:
    """Return, per recorded sample run, the time inside hooks over the run's wall time in %.

    Emulated runs are left out: their wall time is not that of the machine that records.
    """
    shares = {}
    for manifest in sorted(SAMPLES.glob("*/manifest.json")):
        trace = rlinsight.open(manifest.parent)
        share = trace.analyze().trust.hook_share
        emulated = any(device.kind == "emulated" for device in trace.topology.devices)
        if share is not None and not emulated:
            shares[manifest.parent.name] = share * 100
    return shares


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cost = costs(Path(folder) / "costs")
        rate, size, dropped = sustained(Path(folder) / "sustained")
    ratio = cost["OpenTelemetry SDK span"] / cost["span"]
    figures = [
        Figure("span, median", cost["span"], "ns", at_most=1000),
        Figure("counter, median", cost["counter"], "ns"),
        Figure("request (begin and end), median", cost["request"], "ns"),
        Figure("OpenTelemetry SDK span, median", cost["OpenTelemetry SDK span"], "ns"),
        Figure("bare list append of a timed tuple, median", cost["bare list append"], "ns"),
        Figure("OpenTelemetry SDK span / our span", ratio, "x", at_least=10),
        Figure("sustained to disk, one process", rate, "spans/s", at_least=500_000),
        Figure("rows dropped meanwhile", dropped, "rows", at_most=0),
        Figure("on disk", size, "bytes/span", at_most=24),
    ]
    figures += [
        Figure(f"time inside hooks, {name}", share, "% of wall", at_most=0.5)
        for name, share in hook_shares().items()
    ]
    report("recording", figures)


if __name__ == "__main__":
    main()
