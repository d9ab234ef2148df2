"""Everything of a trace that is drawn as an interval, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.analyzers.device_time.merging import idle_segments, merged_bubbles
from rlinsight.analyzers.tables import attr
from rlinsight.webapp.timeline.depths import slots
from rlinsight.webapp.timeline.lanes import BUBBLES_OF, DEVICE, REQUESTS_OF

if TYPE_CHECKING:
    from rlinsight.trace.reader import Trace

#: Columns of an item: times in ns since the epoch, `end_ns` null where it is open, `row` null
#: where it follows from nesting.
SCHEMA: Final = {
    "lane": pl.Categorical,
    "state": pl.Categorical,
    "row": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int32,
    "version": pl.Int32,
}

#: Slots of a replica that are drawn one by one; what runs beside them shares the last.
MOST_SLOTS: Final = 256


def _item(frame: pl.LazyFrame) -> pl.DataFrame:
    """Return rows with all columns of `SCHEMA`; those that are missing are null."""
    have = frame.collect_schema().names()
    return frame.select(
        (pl.col(name) if name in have else pl.lit(None)).cast(kind).alias(name)
        for name, kind in SCHEMA.items()
    ).collect()


def span_items(trace: Trace) -> list[pl.DataFrame]:
    """Return the spans; the state of a pause has its reason."""
    spans = trace.spans.rename({"param_version": "version"})
    paused = pl.col("activity") == "paused"
    reason = pl.lit("paused:") + attr("reason").fill_null("unknown")
    return [
        _item(spans.filter(~paused).rename({"activity": "state"})),
        _item(spans.filter(paused).with_columns(state=reason)),
    ]


def device_items(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger's states of the devices."""
    names = pl.lit(DEVICE) + pl.col("device").cast(pl.String)
    return _item(segments.lazy().with_columns(lane=names, row=0))


def bubble_items(segments: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return the bubbles of each owner by cause, devices of a pool merged."""
    merged, _ = merged_bubbles(idle_segments(segments, trace.topology))
    cause = pl.col("cause").cast(pl.String)
    state = pl.when(cause == "unknown").then(pl.lit("unattributed")).otherwise("bubble." + cause)
    owner = pl.lit(BUBBLES_OF) + pl.col("owner").cast(pl.String)
    return _item(merged.lazy().with_columns(lane=owner, state=state))


def generation_items(requests: pl.DataFrame) -> pl.DataFrame:
    """Return when each replica has at least one request, of training and of validation."""
    kind = pl.when(pl.col("validate")).then(pl.lit("validate")).otherwise(pl.lit("generate"))
    united = union(requests.with_columns(state=kind), ["lane", "state"])
    return _item(united.lazy().with_columns(row=0))


def request_items(requests: pl.DataFrame) -> list[pl.DataFrame]:
    """Return each request in a slot of its replica: until its first token, and from it on.

    `requests` has no open ends; `open` says which were in flight.
    """
    ordered = requests.sort("lane", "start_ns")
    if ordered.is_empty():
        return []
    placed = ordered.with_columns(row=_slots(ordered), lane=pl.lit(REQUESTS_OF) + pl.col("lane"))
    first = pl.col("first_token_ns")
    split = placed.with_columns(first=first.clip(pl.col("start_ns"), pl.col("end_ns")))
    columns = ("lane", "row", "version")
    waits = split.lazy().filter(first.is_not_null())
    return [
        _item(
            waits.select(
                *columns, "start_ns", end_ns="first", state=pl.lit("request.first_token")
            ).filter(pl.col("start_ns") < pl.col("end_ns"))
        ),
        _item(
            split.lazy().select(
                *columns,
                start_ns=pl.coalesce("first", "start_ns"),
                end_ns=pl.when("open").then(None).otherwise("end_ns"),
                state=_request_state(),
            )
        ),
    ]


def _slots(ordered: pl.DataFrame) -> pl.Series:
    lane = ordered["lane"].to_physical().to_numpy()
    first = np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))
    start, end = (ordered[name].to_numpy() for name in ("start_ns", "end_ns"))
    bounds = zip(first, np.append(first[1:], len(lane)), strict=True)
    rows = np.concatenate([slots(start[low:high], end[low:high]) for low, high in bounds])
    return pl.Series(np.minimum(rows, MOST_SLOTS - 1).astype(np.int32))


def _request_state() -> pl.Expr:
    finish = pl.col("finish")
    return (
        pl.when("open")
        .then(pl.lit("request.open"))
        .when(finish.is_in(["abort", "error", "length"]))
        .then(pl.lit("request.") + finish)
        .when("validate")
        .then(pl.lit("request.validate"))
        .otherwise(pl.lit("request.decode"))
    )


def read_requests(trace: Trace, end_ns: int) -> pl.DataFrame:
    """Return the requests with `start_ns`, `end_ns`, `open` and what says how each ended."""
    return trace.requests.select(
        pl.col("lane").cast(pl.Categorical),
        pl.col("finish"),
        pl.col("validate").fill_null(value=False),
        "first_token_ns",
        pl.col("version_start").alias("version"),
        start_ns="submit_ns",
        end_ns=pl.col("end_ns").fill_null(end_ns),
        open=pl.col("end_ns").is_null(),
    ).collect()
