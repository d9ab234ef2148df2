"""The key figures beside the ledger: overlap, staleness, lengths, sync, quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.section import Section
from rlinsight.report.units import count, number, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report

Row = tuple[str, str, str]


def key_figures(report: Report) -> Section:
    """Return the figures that are known, each with what it means."""
    rows = [*_together(report), *_staleness(report), *_lengths(report), *_sync(report)]
    rows += _quality(report)
    known = tuple(row for row in rows if row[1] != "-" and not row[1].startswith("- "))
    return Section("Key figures", ("figure", "value", "meaning"), known)


def _together(report: Report) -> list[Row]:
    rows: list[Row] = []
    if report.overlap is not None:
        rows.append(
            (
                "overlap",
                percent(report.overlap.overlap_ratio),
                "of the wall time both sides work; near 0 is not asynchronous",
            )
        )
    if report.run_ahead is not None:
        rows.append(
            (
                "run-ahead",
                number(report.run_ahead.mean_mini_batches, "mini-batches"),
                "finished trajectories that wait for the trainer, mean",
            )
        )
    if report.outside_steps is not None:
        rows.append(
            (
                "outside steps",
                percent(report.outside_steps.outside_ratio),
                "of the wall time the driver is in no training step",
            )
        )
    return rows


def _staleness(report: Report) -> list[Row]:
    lags, tokens, covered = report.staleness, report.tokens, report.coverage
    rows = [
        ("lag, first token", number(lags.worst_token.mean_versions, "versions"),
         f"mean; at most {count(lags.worst_token.max_versions)} versions"),
        ("stale share", percent(lags.stale_share), "of the trained samples with a known lag"),
        ("partial share", percent(lags.partial_share), "generated under more than one version"),
        ("dropped share", percent(lags.fates.dropped_share), "of produced samples, as too stale"),
        ("coverage, measured", percent(covered.measured),
         "of the wait with fresh samples only is saved by older ones"),
    ]  # fmt: skip
    if covered.analytic is not None:
        rows.append(
            (
                "coverage, analytic",
                percent(covered.analytic.coverage),
                f"{covered.analytic.steps_covered} of {covered.analytic.sync_every} steps",
            )
        )
    if tokens is not None:
        rows.append(
            (
                "wasted tokens",
                percent(tokens.wasted_share),
                f"{tokens.wasted_tokens} of {tokens.generated_tokens} generated, "
                f"residual {count(tokens.residual_tokens)}",
            )
        )
    return rows


def _lengths(report: Report) -> list[Row]:
    lengths = report.lengths
    return [
        ("response length", number(lengths.mean, "tokens"),
         f"mean; CV {number(lengths.cv)}, p50 {number(lengths.p50)}, p95 {number(lengths.p95)}, "
         f"p99 {number(lengths.p99)}, max {count(lengths.max)}"),
        ("share at the cap", percent(lengths.cap_share), "responses cut off, from the pile-up"),
        ("within-group share", percent(_part(lengths.within_group_var, lengths.between_group_var)),
         "of the variance of lengths lies within groups"),
        ("tail cost", number(lengths.tail_cost_device_seconds, "device-s"),
         "replicas below capacity with nothing left to schedule"),
        ("DP imbalance", percent(lengths.dp_imbalance), "max / mean tokens of ranks - 1"),
        *_growth(report),
    ]  # fmt: skip


def _growth(report: Report) -> list[Row]:
    """Return the drift of lengths, and why late steps are longer, where they are."""
    rows: list[Row] = []
    drift, growth = report.lengths.drift, report.step_growth
    if drift is not None:
        sure = "" if drift.significant else ", within noise"
        meaning = f"{percent(drift.change_share)} over {drift.steps} steps{sure}"
        slope = number(drift.slope_tokens_per_step, "tokens/step")
        rows.append(("length drift", slope, meaning))
    if growth.verdict not in ("steady", "unknown"):
        meaning = f"last third of the steps to the first; mostly {growth.verdict}"
        rows.append(("step growth", number(growth.seconds_ratio, "x"), meaning))
    return rows


def _part(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None or one + other == 0 else one / (one + other)


def _sync(report: Report) -> list[Row]:
    if report.sync is None:
        return []
    return [
        (f"weight sync, {backend}", seconds(kind.total_s / kind.syncs),
         f"mean of {kind.syncs}; longest stage: {kind.dominant or 'not recorded'}")
        for backend, kind in report.sync.by_backend.items()
    ] + [
        (f"cache warm-up, {row.lane}", seconds(row.recovery_s),
         f"to 90 % of a hit rate of {percent(row.level_before)} after an update, median; "
         f"not before the next one in {row.unrecovered} of {row.updates}")
        for row in report.sync.cache_warm_up
    ]  # fmt: skip


def _quality(report: Report) -> list[Row]:
    quality = report.quality
    rows = [
        ("reward volatility", number(quality.reward_volatility), "rolling std, trend removed"),
        ("groups without signal", percent(quality.zero_variance_share),
         "all rewards of the group are equal"),
    ]  # fmt: skip
    if quality.kl is not None:
        rows.append(
            (
                "rollout_corr/kl",
                number(quality.kl.median),
                f"median, {quality.kl.level}; 3e-4 is healthy",
            )
        )
    ess = quality.effective_sample_size
    if ess is not None:
        state = "collapsed" if ess.collapsed else "1 is best"
        rows.append(("effective sample size", number(ess.mean), f"mean; {state}"))
    rows += [
        (figure.key, number(figure.last), f"last of {figure.points}; best {number(figure.best)}")
        for figure in quality.accuracy
    ]
    return rows
