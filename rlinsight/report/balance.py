"""How evenly the work lies over replicas and ranks, and what comes back periodically."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.section import Section
from rlinsight.report.units import count, number, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report

Row = tuple[str, str]
#: Skipped versions that are named, of those of one replica.
_NAMED = 5

_BATCH = {
    "balanced": "the replicas end at about the same time",
    "long_tail": "the longest response of each replica explains its time",
    "uneven_work": "the tokens of each replica explain its time",
    "slow_replica": "it is slow for its work",
    "mixed": "neither the longest responses nor the tokens explain it alone",
}


def balance(report: Report) -> Section:
    """Return what is known about the spread of work, a row a finding."""
    rows = [*_requests(report), *_replicas(report), *_versions(report), *_ranks(report)]
    rows += [*_pressure(report), *_periodic(report)]
    return Section("Balance", ("what", "found"), tuple(rows))


def _requests(report: Report) -> list[Row]:
    spread, batch = report.balance.requests, report.balance.batch
    rows = []
    if spread is not None:
        shares = ", ".join(
            f"{lane} {percent(spread.routed[lane])} of them and {percent(share)} of their time"
            for lane, share in spread.shares.items()
        )
        flight = number(spread.mean_in_flight)
        rows.append(("requests over replicas", f"{spread.verdict}: {shares}; {flight} in flight"))
    if batch is not None:
        rows.append(
            (
                "replicas, slowest against mean",
                f"{batch.verdict}: {percent(batch.idle_ratio)} idle until {batch.slowest} ends; "
                f"{_BATCH[batch.verdict]}",
            )
        )
    return rows


def _replicas(report: Report) -> list[Row]:
    return [
        (
            f"slow replica: {row.lane}" if row.slow else f"decode speed: {row.lane}",
            f"{number(row.ms_per_token, 'ms/token')} at {number(row.mean_concurrency)} requests, "
            f"{number(row.slowdown)} x its peers",
        )
        for row in report.balance.replicas
        if row.slowdown is not None
    ]


def _versions(report: Report) -> list[Row]:
    rows = []
    for row in report.balance.versions:
        if row.lagging:
            behind = f"{row.versions_behind} behind its peers for {seconds(row.behind_s)}"
            rows.append((f"lagging replica: {row.lane}", f"version {row.last_version}, {behind}"))
        if row.skipped:
            versions = ", ".join(map(str, row.skipped[:_NAMED]))
            more = ", ..." if len(row.skipped) > _NAMED else ""
            rows.append(
                (
                    f"replica that skipped versions: {row.lane}",
                    f"{count(len(row.skipped))} that its peers took: {versions}{more}",
                )
            )
    return rows


def _ranks(report: Report) -> list[Row]:
    ranks = report.balance.ranks
    if ranks is None:
        return []
    rows = [
        (
            f"ranks in {ranks.activity}",
            f"tokens max / mean - 1: {percent(ranks.dp_imbalance)}, times "
            f"{percent(ranks.time_imbalance)}; {percent(ranks.lost_share)} of rank time lost",
        )
    ]
    rows += [
        (f"slow rank: {rank.lane}", f"{number(rank.slowdown)} x the median time per token")
        for rank in ranks.ranks
        if rank.slow
    ]
    return rows


def _pressure(report: Report) -> list[Row]:
    return [
        (
            f"KV cache: {row.lane}",
            f"{row.finding}: peak {percent(row.peak)}, preemptions {count(row.preemptions)}"
            + (f", full in {seconds(row.full_in_s)}" if row.full_in_s is not None else ""),
        )
        for row in report.balance.kv_pressure
    ]


def _periodic(report: Report) -> list[Row]:
    rows = [
        (
            f"every {pattern.period_steps} steps",
            f"{seconds(pattern.mean_s)} of bubbles instead of {seconds(pattern.other_mean_s)}, "
            f"{pattern.occurrences} times ({', '.join(pattern.settings) or 'no setting fits'})",
        )
        for pattern in report.balance.periodic
    ]
    gap = report.balance.constant_gap
    if gap is not None:
        rows.append(("bubbles of equal length", f"{gap.occurrences} of {seconds(gap.mean_s)}"))
    return rows
