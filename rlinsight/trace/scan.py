"""Tables that are read per query: only the columns and batches that it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rlinsight.trace.compacted import CompactedTable
from rlinsight.trace.frames import polars_schema, to_polars, within
from rlinsight.trace.schema import TIME_COLUMNS, TableName

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


Window = tuple[int, int]


def scan(compacted: CompactedTable, window: Window | None, coded: Collection[str]) -> pl.LazyFrame:
    """Return a lazy frame that reads, per query, only the columns and batches it needs."""
    from polars.io.plugins import register_io_source

    name = compacted.name
    extra = TIME_COLUMNS[name] if window is not None else ()

    def read(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        wanted = None if columns is None else list(dict.fromkeys((*columns, *extra)))
        for table in _one_ahead(compacted.tables(wanted, window)):
            frame = to_polars(table, coded)
            if window is not None:
                frame = frame.filter(within(name, window))
            if columns is not None:
                frame = frame.select(columns)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if n_rows == 0:
                return

    return register_io_source(read, schema=polars_schema(name, coded=coded))


def _one_ahead(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables while the next one is read on another thread."""
    with ThreadPoolExecutor(1) as reading:
        coming = reading.submit(next, tables, None)
        while (table := coming.result()) is not None:
            coming = reading.submit(next, tables, None)
            yield table


def time_range(name: TableName, frame: pl.LazyFrame) -> Window | None:
    """Return the earliest and the latest time of any row of a table, in ns; None without one."""
    import polars as pl

    times = [column for column in TIME_COLUMNS[name] if column != "first_token_ns"]
    found: dict[str, Any] = (
        frame.select(
            first=pl.min_horizontal(pl.col(times).min()),
            last=pl.max_horizontal(pl.col(times).max()),
        )
        .collect()
        .to_dicts()[0]
    )
    return None if found["first"] is None else (found["first"], found["last"])
