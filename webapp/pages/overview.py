"""One run at a glance: the verdict, the key figures, where the time went, what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dash import dcc, html

from rlinsight.analyzers.device_time.per_window import idle_interval
from rlinsight.analyzers.result import Report
from rlinsight.report.units import number, percent, seconds
from rlinsight.report.verdict import CAUSES, sentences
from rlinsight.webapp import components, later, ledger, tables, urls, words
from rlinsight.webapp.components import card
from rlinsight.webapp.figures import overview as figures
from rlinsight.webapp.grid import Column, downloads, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Run

_BUBBLES: Final = (
    Column("from_s", "At", "link", 0.7, 95, "opens the timeline there"),
    Column("duration_s", "Length", "seconds", 0.6, 82),
    Column("owner", "Owner", flex=0.7, min_px=86),
    Column("cause", "Cause", flex=1.2, min_px=150),
    Column("device_seconds", "Device-s", "number", 0.6, 82),
    Column("share_of_pool", "Of pool", "percent", 0.6, 78),
    Column("mini_batches", "Mini-batches", "number", 0.7, 85),
    Column("evidence", "Gauges when it began", flex=3.6, min_px=220),
)

#: So many causes are listed; the table has all.
_FINDINGS: Final = 6


def page(run: Run, query: Query) -> Any:  # noqa: ARG001
    """Return the overview of a run."""
    report = run.report
    return html.Div(
        [
            html.H1("Overview"),
            components.verdict(sentences(report), alarm=report.verdict.alarm is not None),
            components.cards(_cards(run)),
            *_device_time(report),
            components.columns(_findings(run), _over_versions(report)),
            *_advice(run),
            *_bubbles(run),
            *_trust(report),
        ]
    )


def _cards(run: Run) -> Iterator[Any]:
    report, here = run.report, {"run": run.id}
    rate = report.throughput
    tokens, samples = rate.tokens_per_s_per_device, rate.samples_per_s
    yield card("Throughput", number(tokens.value), "tokens/s/device",
               interval=components.interval(tokens), note="trained, prompt + response")  # fmt: skip
    yield card("Samples", number(samples.value), "samples/s",
               interval=components.interval(samples), note="trained, all devices")  # fmt: skip
    for name, pool in report.pools.items():
        logged = pool.framework_idle_ratio
        yield card(
            f"{name.capitalize()} idle",
            *_split(percent(pool.idle_ratio)),
            interval=_idle_interval(report, name),
            note="" if logged is None else f"verl reports {percent(logged)}",
            href=urls.link("/timeline", here),
        )
    yield from _second_row(report, here)


def _second_row(report: Report, here: dict[str, str]) -> Iterator[Any]:
    lags, lengths, kl = report.staleness, report.lengths, report.quality.kl
    if lags.worst_token.mean_versions is not None:
        known = f"at most {lags.worst_token.max_versions}; stale: {percent(lags.stale_share)}"
        yield card("Lag of the first token", number(lags.worst_token.mean_versions), "versions",
                   note=known, href=urls.link("/staleness", here))  # fmt: skip
    if report.coverage.measured is not None:
        yield card("Staleness coverage", *_split(percent(report.coverage.measured)),
                   note="of the wait with fresh samples only",
                   href=urls.link("/staleness", here))  # fmt: skip
    if lengths.mean is not None:
        spread = f"p95 {number(lengths.p95)}, max {number(lengths.max)}; at the cap: "
        yield card("Response length", number(lengths.mean), "tokens",
                   note=spread + percent(lengths.cap_share),
                   href=urls.link("/lengths", here))  # fmt: skip
    drift = "" if kl is None else f"rollout_corr/kl {number(kl.median)}, {kl.level}"
    figure = next(iter(report.quality.accuracy), None)
    if figure is not None:
        told = f"best {number(figure.best)}" + (f"; {drift}" if drift else "")
        yield card("Validation, last", number(figure.last), note=told,
                   href=urls.link("/staleness", here))  # fmt: skip
    elif kl is not None:
        yield card("rollout_corr/kl", number(kl.median), note=f"{kl.level}; 3e-4 is healthy",
                   href=urls.link("/staleness", here))  # fmt: skip


def _split(text: str) -> tuple[str, str]:
    value, _, unit = text.partition(" ")
    return value, unit


def _idle_interval(report: Report, pool: str) -> str:
    device_s = report.window.duration_s
    idle_s = (report.pools[pool].idle_ratio or 0.0) * device_s
    found = idle_interval(report.versions, pool, (idle_s, device_s))
    return components.percents(*found) if found else "too few version windows for an interval"


def _device_time(report: Report) -> Iterator[Any]:
    if not report.pools:
        yield components.section(
            "Device time", components.nothing("No device was recorded, so there is no ledger.")
        )
        return
    window = report.window
    note = f"Figures over {seconds(window.duration_s)} of the run ({window.cut})."
    yield components.section("Device time", ledger.bars(report), note=note)


def _findings(run: Run) -> Any:
    frame = tables.bubble_totals(run)
    if frame.is_empty():
        return components.section("Largest bubbles by cause", components.nothing("No bubble."))
    rows = [_finding(run, row) for row in frame.head(_FINDINGS).to_dicts()]
    return components.section(
        "Where the idle time is",
        components.table(("", "Whose, and why", "Share", "Gain, at most"), rows, numbers=(2, 3)),
        note="Share of that pool's device time; what throughput would gain if the cause vanished "
        "(for the rollouter: throughput per device).",
        actions=downloads("bubble_totals", {"run": run.id}),
    )


def _finding(run: Run, row: dict[str, Any]) -> list[Any]:
    state = "unattributed" if row["cause"] == "unknown" else f"bubble.{row['cause']}"
    said = [html.B(f"{row['owner']}: {words.cause(row['cause'])}"), html.Br(), CAUSES[row["cause"]]]
    alike = [
        bubble
        for bubble in run.report.bubbles.largest
        if (bubble.owner, bubble.cause) == (row["owner"], row["cause"])
    ]
    if alike:
        largest = max(alike, key=lambda bubble: bubble.device_seconds)
        start, end = run.seconds(largest.start_ns), run.seconds(largest.end_ns)
        where = urls.timeline(run.id, start, end)
        said += [" · ", dcc.Link(f"longest: {seconds(row['longest_s'])}", href=where)]
    return [ledger.swatch(state), said, percent(row["share_of_pool"]), percent(row["ceiling"])]


def _over_versions(report: Report) -> Any:
    title = "Idle per version window"
    if not report.versions:
        return components.section(title, components.nothing("No weight sync was recorded."))
    return components.section(
        title,
        components.figure(figures.idle(report), "Idle ratio of each pool per version window"),
        components.figure(
            figures.tokens(report), "Trained tokens per second per version window", 170
        ),
    )


def _advice(run: Run) -> Iterator[Any]:
    if run.report.verdict.alarm is None:
        yield components.section(
            "What to change first",
            _asked(run) if run.live else later.part("first_findings", run),
            note="Predicted by a simulation of this run's mode, calibrated from this run.",
        )


def _asked(run: Run) -> Any:
    # Simulating anew at every step of a growing run would cost more than it tells.
    return html.P(dcc.Link("Ask the advisor", href=urls.link("/advisor", run=run.id)))


def _bubbles(run: Run) -> Iterator[Any]:
    rows = tables.bubbles(run).to_dicts()
    if not rows:
        return
    for row in rows:
        start, end = row["from_s"], row["from_s"] + row["duration_s"]
        row |= {
            "from_s_href": urls.timeline(run.id, start, end),
            "cause": words.cause(row["cause"]),
        }
        row["from_s"] = f"{start:.3f} s"
    yield components.section(
        "Largest bubbles",
        grid("bubbles-grid", rows, _BUBBLES, label="Largest bubbles"),
        actions=downloads("bubbles", {"run": run.id}),
    )


def _trust(report: Report) -> Iterator[Any]:
    doubts = report.verdict.doubts
    skipped = [f"{path}: {why}" for path, why in report.trust.skipped_files.items()]
    lines = [*doubts, *skipped, *report.trust.remarks, *(d.told for d in report.defects)]
    if lines:
        items = [html.Li(line, className="trace-text") for line in lines]
        note = "Reasons to doubt these figures, and defects found in what the framework logged."
        yield components.section("Trust", html.Ul(items), note=note)
