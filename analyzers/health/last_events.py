"""The last thing each lane did."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class LastEvent:
    """The latest record of a lane; `is_open`: it is an interval that has not ended."""

    lane: str
    ts_ns: int
    what: str
    is_open: bool


def last_events(
    spans: pl.DataFrame, requests: pl.DataFrame, samples: pl.DataFrame, markers: pl.DataFrame
) -> tuple[LastEvent, ...]:
    """Return the last event of each lane, the longest silent lane first.

    Counters do not count: they are sampled in any case. An interval counts with its end, an
    open one with its start. Trained samples count for the trainer.
    """
    parts = [
        *_intervals(spans, "start_ns", pl.col("activity")),
        *_intervals(requests, "submit_ns", pl.lit("request")),
        markers.filter(pl.col("lane").is_not_null()).select(
            "lane", "ts_ns", what=pl.col("kind"), is_open=pl.lit(value=False)
        ),
        samples.filter(pl.col("consumed_ns").is_not_null()).select(
            lane=pl.lit("trainer"),
            ts_ns="consumed_ns",
            what=pl.lit("sample consumed"),
            is_open=pl.lit(value=False),
        ),
    ]
    # Of one moment the open interval tells most: it is where the lane stands. Names only decide
    # between equals, so that one trace always gives one report.
    table = pl.concat([_latest(part) for part in parts]).sort("ts_ns", "is_open", "what")
    latest = table.group_by("lane", maintain_order=True).last().sort("ts_ns", "lane")
    return tuple(
        LastEvent(lane, ts_ns, f"{what} began" if is_open else what, is_open)
        for lane, ts_ns, what, is_open in latest.select(
            "lane", "ts_ns", "what", "is_open"
        ).iter_rows()
    )


def _intervals(frame: pl.DataFrame, start: str, what: pl.Expr) -> list[pl.DataFrame]:
    """Return ended and open intervals apart, each as points."""
    is_open = pl.col("end_ns").is_null()
    closed = frame if frame["end_ns"].null_count() == 0 else frame.filter(~is_open)
    return [
        rows.select("lane", ts_ns=at, what=what, is_open=pl.lit(value))
        for rows, at, value in ((closed, "end_ns", False), (frame.filter(is_open), start, True))
    ]


def _latest(part: pl.DataFrame) -> pl.DataFrame:
    """Keep the latest row of each lane: no sort of large tables."""
    last = pl.col("ts_ns").arg_max()
    return (
        part.group_by("lane")
        .agg(pl.col("ts_ns").max(), pl.col("what", "is_open").get(last))
        .select(pl.col("lane").cast(pl.String), "ts_ns", pl.col("what").cast(pl.String), "is_open")
    )
