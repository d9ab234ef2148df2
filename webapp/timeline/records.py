"""The record behind an interval, read from the trace when somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from rlinsight.trace.reader import Trace

Window = tuple[int, int]


def span_fields(trace: Trace, lane: str, state: str, window: Window) -> dict[str, str]:
    """Return the attributes of the span of a state that begins with the window (epoch ns)."""
    activity = "paused" if state.startswith("paused:") else state
    rows = (
        trace.table("spans", (window[0], window[0] + 1))
        .filter(
            (pl.col("lane") == lane)
            & (pl.col("activity") == activity)
            & (pl.col("start_ns") == window[0])
        )
        .select("attrs")
        .head(1)
        .collect()
    )
    attrs = rows["attrs"].to_list()[0] if rows.height else None
    return {pair["key"]: pair["value"] for pair in attrs or () if pair["value"] is not None}


def request_fields(trace: Trace, lane: str, window: Window) -> dict[str, Any]:
    """Return the request of a replica of which the window (epoch ns) is a part.

    `to_first_token_s` and `tokens_per_s` (response tokens from the first one on) are None where
    the first token was not recorded.
    """
    start, end = pl.col("submit_ns"), pl.col("end_ns")
    begins = (start == window[0]) | (pl.col("first_token_ns") == window[0])
    ends = (end == window[1]) | (pl.col("first_token_ns") == window[1]) | end.is_null()
    rows = (
        trace.table("requests", (window[0], max(window[1], window[0] + 1)))
        .filter((pl.col("lane") == lane) & begins & ends)
        .head(1)
        .collect()
        .to_dicts()
    )
    if not rows:
        return {}
    row: dict[str, Any] = rows[0]
    first, submit, finished = row["first_token_ns"], row["submit_ns"], row["end_ns"]
    tokens = row["response_tokens"]
    decoding = None if first is None or finished is None else (finished - first) / 1e9
    kept = (
        "request_id", "sample_uid", "engine_kind", "prompt_tokens", "response_tokens",
        "version_start", "version_end", "finish", "attempt", "validate",
    )  # fmt: skip
    return {
        **{name: row[name] for name in kept if row[name] is not None},
        "to_first_token_s": None if first is None else (first - submit) / 1e9,
        "tokens_per_s": tokens / decoding if tokens and decoding else None,
    }
