"""Rows of a table into Arrow record batches.

Rows arrive flattened (row after row in one list), because slicing a column out of a flat
list costs a tenth of transposing tuples. The fast way converts whole columns. When a
column holds a value that does not fit its type, the rows are converted one by one, and
only those that cannot be stored are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from rlinsight.trace.schema import TABLES, TableName, canonical_activity

Row = tuple[Any, ...]

_COLUMNS: Final[dict[TableName, tuple[str, ...]]] = {t: tuple(s.names) for t, s in TABLES.items()}
_COLUMN_SETS: Final = {table: frozenset(names) for table, names in _COLUMNS.items()}


def row_of(table: TableName, columns: Mapping[str, Any]) -> Row:
    """Return the row of these columns, None where one is not given; TypeError for an unknown one.

    Called once per row recorded, so it costs no more than it must.
    """
    names = _COLUMNS[table]
    if not columns.keys() <= _COLUMN_SETS[table]:
        unknown = ", ".join(f"`{name}`" for name in columns if name not in names)
        raise TypeError(f"table `{table}` has no column {unknown}; its columns are {names}")
    return tuple(map(columns.get, names))


class NameTable:
    """The dictionary of one dictionary-encoded column; it only grows, so deltas suffice."""

    def __init__(self, canonical: Callable[[str], str] | None = None) -> None:
        self._ids: dict[str | None, int | None] = {None: None}
        self._names: list[str] = []
        self._array: pa.StringArray = pa.array([], pa.string())
        self._canonical = canonical

    def encode(self, column: Sequence[str | None]) -> pa.DictionaryArray:
        """Return `column` encoded against this table; raises TypeError for a non-string."""
        ids = self._ids
        try:
            indices = [ids[name] for name in column]
        except KeyError:
            for name in set(column) - ids.keys():
                self._add(name)
            indices = [ids[name] for name in column]
        if len(self._array) != len(self._names):
            self._array = pa.array(self._names, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), self._array)

    def _add(self, name: str | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"expected a name as `str`, found {name!r}")
        name.encode()  # a lone surrogate raises here, before it reaches the dictionary
        stored = self._canonical(name) if self._canonical else name
        known = self._ids.get(stored)
        if known is None:
            known = len(self._names)
            self._names.append(stored)
            self._ids[stored] = known
        self._ids[name] = known


class Encoder:
    """Turns rows of one table into record batches that share growing dictionaries."""

    def __init__(self, table: TableName) -> None:
        self.schema = TABLES[table]
        self._fields = list(self.schema)
        self._required = [i for i, f in enumerate(self._fields) if not f.nullable]
        self._names = {
            f.name: NameTable(canonical_activity if f.name == "activity" else None)
            for f in self._fields
            if pa.types.is_dictionary(f.type)
        }

    def encode(self, flat: list[Any]) -> tuple[pa.RecordBatch, int]:
        """Return the batch of all storable rows, and how many rows could not be stored.

        `flat` holds complete rows, one after the other, each in schema order.
        """
        width = len(self._fields)
        try:
            return self._batch([flat[i::width] for i in range(width)]), 0
        except Exception:  # `str()` of an attribute may raise anything
            rows = [tuple(flat[i : i + width]) for i in range(0, len(flat), width)]
            stored = [row for row in map(self._mended, rows) if row is not None]
            return self._batch(_columns(stored, width)), len(rows) - len(stored)

    def _batch(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        arrays = [
            self._column(field, column) for field, column in zip(self._fields, columns, strict=True)
        ]
        if any(arrays[i].null_count for i in self._required):
            raise ValueError("a required column holds null")
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, field: pa.Field, column: Sequence[Any]) -> pa.Array:
        names = self._names.get(field.name)
        if names is not None:
            return names.encode(column)
        if pa.types.is_map(field.type):
            return _attrs_array(column, field.type)
        return pa.array(column, field.type)

    def _mended(self, row: Row) -> Row | None:
        """Return `row` in a form that can be stored, or None when there is none."""
        try:
            mended = tuple(_storable(value) for value in row)
            self._batch(_columns([mended], len(mended)))
        except Exception:
            return None
        return mended


def _columns(rows: Sequence[Row], width: int) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(width)]


def _attrs_array(column: Sequence[Mapping[str, object] | None], kind: pa.DataType) -> pa.Array:
    if not any(column):
        return pa.nulls(len(column), kind)
    return pa.array(
        [[(str(k), str(v)) for k, v in attrs.items()] if attrs else None for attrs in column],
        kind,
    )


def _storable(value: Any) -> Any:
    """Escape what UTF-8 cannot hold, so that a hostile string costs its spelling, not its row."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_storable(str(k)): _storable(str(v)) for k, v in value.items()}
    return value
