"""How old the trained samples are, what that saves, and what it does to learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import dash_mantine_components as dmc
import polars as pl
from dash import html

from rlinsight.analyzers.quality.guard import metric_curve, reward_curve
from rlinsight.analyzers.quality.step_axis import on_step_axis
from rlinsight.analyzers.quality.trends import volatility_curve
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.staleness.coverage import Coverage
from rlinsight.analyzers.staleness.lags import lags, trained_in
from rlinsight.analyzers.tables import training_steps
from rlinsight.report.units import count, number, percent, seconds
from rlinsight.webapp import components, tables, words
from rlinsight.webapp.components import card, section
from rlinsight.webapp.figures import staleness as figures
from rlinsight.webapp.grid import Column, downloads, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Run

_ENDS: Final = {"first": "version_start", "last": "version_end"}

_COVERAGE: Final = (
    Column("version", "Version", "count", 0.7, 85),
    Column("trigger_steps", "Trigger steps", "count", 0.9, 110),
    Column("wait_s", "Waited", "seconds", 0.9, 90),
    Column("fresh_only_wait_s", "With fresh only", "seconds", 1.1, 125),
    Column("coverage", "Coverage", "percent", 0.9, 95),
    Column("unknown", "Why unknown", flex=2.2, min_px=170),
)


def page(run: Run, query: Query) -> Any:
    """Return the staleness of a run; `token=last` counts from the last token of a sample."""
    end = query.get("token", "first")
    end = end if end in _ENDS else "first"
    report = run.report
    return html.Div(
        [
            html.H1("Staleness"),
            components.verdict(_sentences(report)),
            components.cards(_cards(report)),
            components.columns(_histogram(report, end), _by_version(run, end)),
            components.columns(*_coverage(report)),
            *_quota(run),
            *_quality(run),
            *_coverage_table(run),
        ]
    )


def _sentences(report: Report) -> list[str]:
    lag, covered = report.staleness.worst_token, report.coverage
    if lag.mean_versions is None:
        return ["How old the trained samples were was not recorded."]
    first = (
        "Every trained sample is fresh: none is older than the weights that trained on it."
        if not lag.max_versions
        else f"Trained samples are {number(lag.mean_versions)} versions old on average, "
        f"{lag.max_versions} at most."
    )
    more = [f"Known for {percent(lag.known_share)} of them."]
    if covered.measured is not None:
        more.append(
            f"Older samples save {percent(covered.measured)} of the wait that the trainer would "
            "have had with fresh ones only."
        )
    return [first, *more]


def _cards(report: Report) -> Iterator[Any]:
    found, tokens, covered = report.staleness, report.tokens, report.coverage
    yield card("Lag of the first token", number(found.worst_token.mean_versions), "versions",
               note=f"at most {count(found.worst_token.max_versions)}")  # fmt: skip
    yield _share("Stale", found.stale_share, "of the trained samples")
    yield _share("Partial", found.partial_share, "generated under several versions")
    yield _share("Dropped", found.fates.dropped_share, "of the produced, as too stale")
    settings = "no setting allows older samples"
    if covered.analytic is not None:
        settings = f"settings can cover {covered.analytic.steps_covered} of "
        settings += f"{covered.analytic.sync_every} steps"
    yield _share("Coverage, measured", covered.measured, settings)
    if tokens is not None:
        wasted = f"{tokens.wasted_tokens} of {tokens.generated_tokens} generated"
        yield _share("Wasted tokens", tokens.wasted_share, wasted)


def _share(label: str, ratio: float | None, note: str) -> Any:
    value, _, unit = percent(ratio).partition(" ")
    return card(label, value, unit, note=note)


def _histogram(report: Report, end: str) -> Any:
    found = report.staleness.worst_token if end == "first" else report.staleness.last_token
    control = dmc.SegmentedControl(
        id={"type": "query", "key": "token"},
        value=end,
        data=[{"value": name, "label": f"{name} token"} for name in _ENDS],
        size="xs",
        **{"aria-label": "Which token the lag is counted from"},
    )
    title = "Lag of trained samples"
    if not found.counts:
        return section(title, components.nothing("No version of a sample is known."))
    label = f"Histogram of the lag of the {end} token in versions"
    return section(title, components.figure(figures.lags(found.counts), label), actions=[control])


def _by_version(run: Run, end: str) -> Any:
    title = "Lag per version window"
    report = run.report
    window = (report.window.start_ns, report.window.end_ns)
    trained = trained_in(run.trace.samples.collect(), window)
    known = trained.filter(pl.col("trained_version").is_not_null()).sort("trained_version")
    rows = [
        (int(version), lags(part, "trained_version", _ENDS[end]).counts)
        for (version,), part in known.group_by("trained_version", maintain_order=True)
    ]
    rows = [(version, counts) for version, counts in rows if counts]
    if not rows:
        return section(title, components.nothing("No version of a sample is known."))
    return section(
        title,
        components.figure(figures.lags_by_version(rows), "Share of each lag per version window"),
    )


def _coverage(report: Report) -> Iterator[Any]:
    found = report.coverage
    if any(row.coverage is not None for row in found.windows):
        yield section(
            "Coverage per version window",
            components.figure(figures.coverage(found), "Coverage per version window"),
            note="1 - wait / wait with samples of this version only; not clamped."
            + _analytic(found),
        )
    if found.steps:
        yield section(
            "Which trigger steps are fed with older samples",
            components.figure(figures.steps_covered(found), "Share of older samples per step"),
            note=f"Mean waits: {', '.join(seconds(s.mean_wait_s) for s in found.steps[:8])}.",
        )


def _analytic(found: Coverage) -> str:
    if found.analytic is None:
        return ""
    return f" Dotted: what the settings can cover, {percent(found.analytic.coverage)} of the steps."


def _quota(run: Run) -> Iterator[Any]:
    used, limit = (_gauge(run, name) for name in ("staleness_samples", "max_required_samples"))
    if not used.is_empty():
        yield section(
            "Use of the staleness quota",
            components.figure(figures.quota(used, limit), "Stale samples against their limit", 240),
            note="Where the solid line reaches the dashed one, the rollouter pauses.",
        )


def _gauge(run: Run, name: str) -> pl.DataFrame:
    rows = run.trace.counters.filter(pl.col("name") == name).sort("ts_ns").collect()
    return rows.select(x=(pl.col("ts_ns") - run.start_ns) / 1e9, y="value")


def _quality(run: Run) -> Iterator[Any]:
    curves = _curves(run)
    if not curves:
        return
    height = 70 + 120 * len(curves)
    drawn = components.figure(figures.quality(curves), "Quality curves over the steps", height)
    yield section(
        "Quality on the same step axis",
        drawn,
        note="What staleness may cost: reward, its rolling volatility with the trend removed, "
        "validation accuracy, and the mismatch of rollout and training policy (3e-4 is healthy).",
    )


def _curves(run: Run) -> list[tuple[str, pl.DataFrame]]:
    trace = run.trace
    metrics = trace.metrics.filter(pl.col("step").is_not_null()).collect()
    steps = training_steps(trace.spans.filter(pl.col("activity") == "step").collect())
    metrics, _ = on_step_axis(metrics, steps, trace.mode, trace.manifest.config)
    rewards, source = reward_curve(trace.samples.collect(), metrics)
    rough = volatility_curve(rewards)
    found = [(f"mean reward ({source})", rewards)]
    found += [("reward volatility", rough)] if rough is not None else []
    found += [(a.key, metric_curve(metrics, a.key)) for a in run.report.quality.accuracy[:3]]
    keys = ("rollout_corr/kl", "rollout_corr/rollout_is_eff_sample_size", "actor/pg_clipfrac")
    found += [(key, metric_curve(metrics, key)) for key in keys]
    return [(name, curve) for name, curve in found if not curve.is_empty()]


def _coverage_table(run: Run) -> Iterator[Any]:
    rows = tables.coverage(run).to_dicts()
    if rows:
        for row in rows:
            row["unknown"] = words.cause(row["unknown"]) if row["unknown"] else None
        yield section(
            "Coverage, window by window",
            grid("coverage-grid", rows, _COVERAGE, label="Coverage per version window"),
            actions=downloads("coverage", {"run": run.id}),
        )
