"""Tables of an older schema version, brought to the current one on read.

Each entry of `UPGRADES` lifts a table by one version; a file of version n passes through
the entries n, n+1, ... in turn. To change the schema: raise `SCHEMA_VERSION` and add one
entry, often no more than `renamed` and `filled`. Afterwards `conform` orders the columns,
adds the nullable ones that are missing as null, and checks the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rlinsight.errors import TraceError
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TableName

Step = Callable[[TableName, pa.Table], pa.Table]
Chain = Mapping[int, Step]

#: version -> how its tables become tables of the next version. Version 1 is the first.
UPGRADES: Final[Chain] = {}


class UnusableTableError(TraceError):
    """A table whose columns cannot be understood."""


def check_version(version: int, where: str) -> None:
    """Raise TraceError when `version` was written by a newer rlinsight than this one."""
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"expected a trace of schema version {SCHEMA_VERSION} or older, found version "
            f"{version} in {where}; upgrade rlinsight to read it"
        )


def upgrade(name: TableName, table: pa.Table, version: int, chain: Chain | None = None) -> pa.Table:
    """Return `table`, of schema `version`, as a table of the current schema.

    Raises UnusableTableError when a step is missing or the columns do not fit.
    """
    chain = UPGRADES if chain is None else chain
    for step in range(version, SCHEMA_VERSION):
        if step not in chain:
            raise UnusableTableError(f"schema version {step} can no longer be read")
        table = chain[step](name, table)
    return conform(name, table)


def renamed(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return `table` with columns renamed, {old: new}; absent ones are ignored."""
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def filled(table: pa.Table, column: str, value: Any, kind: pa.DataType) -> pa.Table:
    """Return `table` with `column`, where it is missing, holding `value` in every row."""
    if column in table.column_names:
        return table
    return table.append_column(column, pa.repeat(pa.scalar(value, kind), table.num_rows))


def conform(name: TableName, table: pa.Table) -> pa.Table:
    """Return `table` with exactly the columns and types of the current schema.

    Unknown columns are left out, missing nullable ones are null. Raises UnusableTableError.
    """
    schema = TABLES[name]
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [_column(name, table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(name: TableName, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if field.nullable:
            return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        raise UnusableTableError(f"table `{name}` lacks its column `{field.name}`")
    column = table.column(field.name)
    if not field.nullable and column.null_count:
        raise UnusableTableError(f"table `{name}`: column `{field.name}` holds null")
    try:
        return _cast(column, field.type)
    except pa.ArrowException as error:
        raise UnusableTableError(
            f"table `{name}`: expected column `{field.name}` as {field.type}, found {column.type}"
        ) from error


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.dictionary_encode(column.cast(kind.value_type)).cast(kind)
