"""What of a compacted table is not used, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rlinsight.trace.index import BatchTimes
from rlinsight.trace.schema import TableName
from rlinsight.trace.torn import Torn

#: So many damaged batches are told one by one.
_NAMED: Final = 5


def batches_lost(
    name: TableName, damage: Mapping[int, str], batches: int, index: Sequence[BatchTimes] | None
) -> str:
    """Return which of the `batches` record batches cannot be read, why, and how many rows that is.

    Worked example: batch 1 of 3, of 4 rows each: "1 of its 3 record batches cannot be read, 4 of 12
    rows of table `spans` are left out: batch 1 (why)". Batches count from 0.
    """
    rows = "their rows"
    if index is not None:
        lost = sum(index[number].rows for number in damage)
        rows = f"{lost} of {sum(entry.rows for entry in index)} rows"
    named = [f"batch {number} ({damage[number]})" for number in sorted(damage)[:_NAMED]]
    more = f" and {len(damage) - len(named)} more" if len(damage) > len(named) else ""
    return (
        f"{len(damage)} of its {batches} record batches cannot be read, {rows} of table `{name}` "
        f"are left out: {', '.join(named)}{more}"
    )


def footer_lost(name: TableName, torn: Torn, size: int, *, rows_known: bool) -> str:
    """Return how far a table without a footer is read."""
    unknown = "" if rows_known else "; how many rows lie there is not known"
    return (
        f"its footer cannot be read ({torn.reason}): table `{name}` is read from its begin up to "
        f"byte {torn.end}, the {size - torn.end} bytes behind it are not{unknown}"
    )
