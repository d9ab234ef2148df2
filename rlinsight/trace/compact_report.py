"""What a compaction did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rlinsight.trace.schema import TableName
from rlinsight.trace.sources import Skipped


@dataclass(frozen=True)
class TableReport:
    """One table: rows before (open and partial rows counted) and after, bytes on disk."""

    rows_in: int
    rows: int
    bytes_in: int
    bytes: int

    @property
    def bytes_per_row(self) -> float | None:
        """Bytes on disk per row after compaction, None without rows."""
        return self.bytes / self.rows if self.rows else None


@dataclass(frozen=True)
class CompactReport:
    """What a compaction did. `kept` are live files left in place, with the reason."""

    path: str
    tables: dict[TableName, TableReport]
    skipped: tuple[Skipped, ...]
    kept: tuple[Skipped, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "path": self.path,
            "tables": {
                name: asdict(table) | {"bytes_per_row": table.bytes_per_row}
                for name, table in self.tables.items()
            },
            "skipped": [asdict(item) for item in self.skipped],
            "kept": [asdict(item) for item in self.kept],
        }
