"""How long responses are, how unevenly, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dash import html

from rlinsight.analyzers.result import Report
from rlinsight.report.units import count, number, percent
from rlinsight.webapp import components, tables
from rlinsight.webapp.components import card, section
from rlinsight.webapp.figures import lengths as figures
from rlinsight.webapp.grid import Column, downloads, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Run

_REPLICAS: Final = (
    Column("replica", "Replica", flex=1.4, min_px=110),
    Column("engine_kind", "Kind", flex=0.9, min_px=90),
    Column("samples", "Samples", "count", 0.7, 74),
    Column("mean", "Mean", "number", 0.7, 62, "tokens"),
    Column("p95", "p95", "number", 0.7, 62, "tokens"),
    Column("max", "Max", "count", 0.7, 62, "tokens"),
    Column("cap_share", "At cap", "percent", 0.7, 70),
    Column("ms_per_token", "ms per token", "number", 0.8, 70, "at its own concurrency"),
    Column("slowdown", "Slow-down", "number", 0.8, 64, "against its peers at equal concurrency"),
    Column("slot_utilization", "Slots used", "percent", 0.8, 76),
    Column("mean_running", "Running", "number", 0.8, 76, "requests, time-weighted mean"),
    Column("tail_cost_device_seconds", "Tail, device-s", "number", 0.9, 84),
)

_RANKS: Final = (
    Column("rank", "Rank", flex=1.6, min_px=130),
    Column("calls", "Calls", "count"),
    Column("tokens", "Tokens", "count"),
    Column("seconds", "Time", "seconds"),
    Column("slowdown", "Slowdown", "number", tooltip="time per token against the median rank"),
)

_STEPS: Final = (
    Column("step", "Step", "count", 0.7),
    Column("samples", "Samples", "count", 0.8),
    Column("mean", "Mean", "number", 0.8),
    Column("cv", "CV", "number", 0.7),
    Column("p50", "p50", "number", 0.7),
    Column("p95", "p95", "number", 0.7),
    Column("p99", "p99", "number", 0.7),
    Column("max", "Max", "count", 0.7),
    Column("cap_share", "At cap", "percent", 0.8),
)


def page(run: Run, query: Query) -> Any:  # noqa: ARG001
    """Return the response lengths of a run."""
    report = run.report
    return html.Div(
        [
            html.H1("Lengths"),
            components.verdict(_sentences(report)),
            components.cards(_cards(report)),
            components.columns(_histogram(report), _steps(report)),
            components.columns(*_costs(report)),
            *_replicas(run),
            *_ranks(run),
            *_step_table(run),
        ]
    )


def _sentences(report: Report) -> list[str]:
    lengths = report.lengths
    if lengths.mean is None:
        return ["No response length was recorded."]
    whose = "trained responses" if lengths.population == "trained" else "answered requests"
    first = f"The {whose} have {number(lengths.mean)} tokens on average, p95 {number(lengths.p95)}"
    if lengths.cap_share:
        first += f"; {percent(lengths.cap_share)} are cut off at the cap"
    more = [f"{lengths.samples} lengths, {percent(lengths.known_share)} of all."]
    drift = lengths.drift
    if drift is not None and drift.p_value is not None and drift.p_value < 0.05:
        grows = "grow" if drift.slope_tokens_per_step > 0 else "shrink"
        rate = number(abs(drift.slope_tokens_per_step), "tokens a step")
        more.append(f"They {grows} by {rate} (p = {number(drift.p_value)}).")
    bias = lengths.bias
    if bias is not None and bias.p_value is not None and bias.p_value < 0.05:
        kind = "longer" if bias.bias_tokens > 0 else "shorter"
        more.append(f"What is trained is {number(abs(bias.bias_tokens))} tokens {kind} than "
                    "what was sampled.")  # fmt: skip
    return [f"{first}.", *more]


def _cards(report: Report) -> Iterator[Any]:
    lengths = report.lengths
    yield card("Mean", number(lengths.mean), "tokens", note=f"CV {number(lengths.cv)}")
    yield card("p95", number(lengths.p95), "tokens",
               note=f"p99 {number(lengths.p99)}, max {count(lengths.max)}")  # fmt: skip
    yield card("At the cap", *_split(lengths.cap_share), note="from the pile-up in the lengths")
    within, between = lengths.within_group_var, lengths.between_group_var
    total = None if within is None or between is None else within + between
    share = within / total if total and within is not None else None
    yield card("Variance within groups", *_split(share),
               note=f"{lengths.variance.groups} groups; the rest lies between prompts")  # fmt: skip
    if lengths.tail is not None:
        yield card("Tail cost", number(lengths.tail.cost_device_seconds), "device-s",
                   note=f"{percent(lengths.tail.share_of_busy)} of the busy time; "
                   f"{lengths.tail.tails} tails")  # fmt: skip
    if lengths.dp_imbalance is not None:
        yield card("DP imbalance", *_split(lengths.dp_imbalance), note="max / mean tokens - 1")


def _split(ratio: float | None) -> tuple[str, str]:
    value, _, unit = percent(ratio).partition(" ")
    return value, unit


def _histogram(report: Report) -> Any:
    title = "Distribution"
    if not report.lengths.histogram:
        return section(title, components.nothing("No response length was recorded."))
    drawn = figures.histogram(report.lengths)
    return section(title, components.figure(drawn, "Histogram of response lengths"))


def _steps(report: Report) -> Any:
    title = "Over the training steps"
    if not report.lengths.steps:
        return section(title, components.nothing("No training step of a sample is known."))
    drawn = figures.by_step(report.lengths.steps)
    return section(title, components.figure(drawn, "Percentiles of response lengths per step"))


def _costs(report: Report) -> Iterator[Any]:
    tail, batch = report.lengths.tail, report.balance.batch
    if tail is not None and tail.replicas:
        yield section(
            "Tail cost per replica",
            components.figure(
                figures.tail(tail), "Tail cost per replica", _height(len(tail.replicas))
            ),
            note="From the moment a replica falls below capacity with nothing left to schedule to "
            f"its last completion (decided from: {tail.evidence}).",
        )
    if batch is not None:
        said = f"Verdict on the batch: {batch.verdict.replace('_', ' ')}."
        yield section(
            "Time per token of the longest response",
            components.figure(
                figures.longest(batch), "Time per token per worker", _height(len(batch.workers))
            ),
            note=f"Alike on all workers: a long tail; one that stands out: a slow device. {said}",
        )
    if report.lengths.steps and any(row.cap_share for row in report.lengths.steps):
        yield section(
            "Share at the cap per step",
            components.figure(figures.cap_by_step(report.lengths.steps), "Share at the cap", 220),
        )


def _height(rows: int) -> int:
    return max(150, 70 + 26 * min(rows, 40))


def _replicas(run: Run) -> Iterator[Any]:
    rows = tables.lengths_by_replica(run).to_dicts()
    if rows:
        spread = run.report.balance.requests
        note = f"Requests are spread: {spread.verdict.replace('_', ' ')}." if spread else ""
        yield section(
            "Replicas",
            grid("replicas-grid", rows, _REPLICAS, label="Replicas"),
            note=note,
            actions=downloads("lengths_by_replica", {"run": run.id}),
        )


def _ranks(run: Run) -> Iterator[Any]:
    balance = run.report.balance.ranks
    if balance is not None:
        note = f"{balance.activity}: lost to the rank with the most tokens "
        yield section(
            "Data-parallel ranks",
            grid("ranks-grid", tables.ranks(run).to_dicts(), _RANKS, label="Ranks"),
            note=f"{note}{percent(balance.lost_share)} of the rank time.",
            actions=downloads("ranks", {"run": run.id}),
        )


def _step_table(run: Run) -> Iterator[Any]:
    rows = tables.lengths_by_step(run).to_dicts()
    if rows:
        yield section(
            "Step by step",
            grid("steps-grid", rows, _STEPS, label="Lengths per training step"),
            actions=downloads("lengths_by_step", {"run": run.id}),
        )
