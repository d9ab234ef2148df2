"""Tables of a trace as frames, without a trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from rlinsight.trace.frames import polars_schema


def frame(table: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows of a table of the trace; what a row does not name is null."""
    schema = polars_schema(table)
    return pl.DataFrame([{**dict.fromkeys(schema), **row} for row in rows], schema=schema)
