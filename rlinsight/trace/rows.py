"""What rows mean together: open rows that were closed later, samples told in parts, order.

Every function works on one table of the current schema, with clocks corrected. `process`
says, for each row, which process wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rlinsight.trace.frames import key_frame
from rlinsight.trace.schema import END_COLUMN, TIME_COLUMN, TableName

if TYPE_CHECKING:
    import polars as pl

#: What an open row and its closed row have in common.
OPEN_KEY: Final[dict[TableName, tuple[str, ...]]] = {
    "spans": ("start_ns", "activity", "lane"),
    "requests": ("request_id", "submit_ns", "lane", "attempt"),
}

#: Fates from least to most final; an unknown name stands between `unconsumed` and `aborted`.
FATE_RANK: Final = {
    "unconsumed": 1, "aborted": 3, "filtered": 4, "dropped_stale": 5, "trained": 6,
}  # fmt: skip
_UNKNOWN_FATE_RANK: Final = 2


def settle(name: TableName, table: pa.Table, process: pa.Array) -> pa.Table:
    """Return the rows as a reader sees them: opens cancelled, samples merged, in time order."""
    if name in OPEN_KEY:
        table = cancel_open(name, table, process)
    elif name == "samples":
        table = merge_samples(table)
    return sort_by_time(name, table)


def cancel_open(name: TableName, table: pa.Table, process: pa.Array) -> pa.Table:
    """Return `table` without the open rows that a closed row of the same process completes.

    It is a multiset subtraction: n open and m closed rows of one key leave max(0, n - m)
    open rows, the last written.
    """
    if table.column("end_ns").null_count == 0:
        return table
    import polars as pl

    rows = key_frame(table, (*OPEN_KEY[name], "end_ns")).with_columns(
        process=pl.Series(process), row=pl.int_range(table.num_rows, eager=True)
    )
    return _without(table, superseded(name, rows))


def superseded(name: TableName, rows: pl.DataFrame) -> pl.Series:
    """Return the numbers of the open rows that a closed row completes.

    `rows` has the key columns, `process`, `end_ns`, and the row number as `row`.
    """
    import polars as pl

    key = ["process", *OPEN_KEY[name]]
    is_open = pl.col("end_ns").is_null()
    opened = rows.filter(is_open).with_columns(nth=pl.int_range(pl.len()).over(key))
    closed = (
        rows.filter(~is_open)
        .join(opened.select(key).unique(), on=key, how="semi", nulls_equal=True)
        .group_by(key)
        .agg(closed=pl.len())
    )
    done = opened.join(closed, on=key, nulls_equal=True).filter(pl.col("nth") < pl.col("closed"))
    return done["row"]


def merge_samples(table: pa.Table) -> pa.Table:
    """Return one row per `sample_uid`, in order of first appearance.

    Rows are read from the least to the most final fate, in the order written where fates
    are equal; a later row fills nulls and overrides what it knows.
    """
    import polars as pl

    uids = key_frame(table, ("sample_uid",))
    if uids["sample_uid"].n_unique() == table.num_rows:
        return table
    columns = [column for column in table.column_names if column != "sample_uid"]
    known = [
        pl.when(pl.Series(table.column(column).is_valid())).then(pl.col("row")).alias(column)
        for column in columns
    ]
    rows = uids.with_columns(
        row=pl.int_range(table.num_rows, eager=True), rank=_fate_rank(table.column("fate"))
    ).with_columns(known)
    last = [pl.col(column).drop_nulls().last() for column in columns]
    merged = (
        rows.sort("rank", maintain_order=True)
        .group_by("sample_uid", maintain_order=True)
        .agg(*last, first=pl.col("row").min())
        .sort("first")
    )
    taken = {column: _indices(merged[column]) for column in columns}
    taken["sample_uid"] = _indices(merged["first"])
    arrays = [table.column(field.name).take(taken[field.name]) for field in table.schema]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def sort_by_time(name: TableName, table: pa.Table) -> pa.Table:
    """Return the rows by time, those without a time last; equal times keep their order.

    Samples of equal times are ordered by uid: merging leaves no order to keep.
    """
    times = start_times(name, table)
    if name == "samples":
        keys = pa.table({"time": times, "uid": table.column("sample_uid")})
        return table.take(pc.sort_indices(keys, [("time", "ascending"), ("uid", "ascending")]))
    return table if _is_sorted(times) else table.take(pc.sort_indices(times))


def start_times(name: TableName, table: pa.Table | pa.RecordBatch) -> Any:
    """Return when each row begins, in ns: a sample is placed by its production if known."""
    if name == "samples":
        return pc.coalesce(table.column("produced_ns"), table.column("consumed_ns"))
    return table.column(TIME_COLUMN[name])


def end_times(name: TableName, table: pa.Table | pa.RecordBatch) -> Any:
    """Return when each row ends, in ns; null where it is open. A point ends as it begins."""
    column = END_COLUMN.get(name)
    return start_times(name, table) if column is None else table.column(column)


def _is_sorted(times: pa.ChunkedArray) -> bool:
    if times.null_count or len(times) < 2:
        return len(times) < 2
    flat = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    return bool(pc.all(pc.less_equal(flat[:-1], flat[1:])).as_py())


def _fate_rank(fates: pa.ChunkedArray) -> pl.Series:
    import polars as pl

    names = pl.Series(fates.cast(pa.string()))
    rank = names.replace_strict(FATE_RANK, default=_UNKNOWN_FATE_RANK, return_dtype=pl.Int8)
    return rank.set(names.is_null(), 0)  # type: ignore[no-any-return]


def _without(table: pa.Table, rows: pl.Series) -> pa.Table:
    if rows.is_empty():
        return table
    import polars as pl

    keep = pl.Series([True]).new_from_index(0, table.num_rows).scatter(rows, values=False)
    return table.filter(keep.to_arrow())


def _indices(rows: pl.Series) -> pa.Array:
    return rows.to_arrow().cast(pa.int64())
