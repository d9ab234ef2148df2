"""The runs of a baseline as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from rich.table import Table
from rich.text import Text

from rlinsight.report.plain import line, styled
from rlinsight.report.units import number, seconds


def baseline_table(key: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return the runs of one identity, as `baseline list --json` gives them."""
    first = rows[0]
    what = ", ".join(str(first[name]) for name in ("mode", "model") if first[name])
    table = Table(
        title=line(f"identity {key}{f' ({what})' if what else ''}"), title_justify="left",
        title_style="bold", box=None, pad_edge=False, header_style="dim",
    )  # fmt: skip
    for column in ("run", "trusted", "recorded", "windows", "tokens/s/device", "step", "note"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(
            styled(row["name"]),
            Text("yes", style="green") if row["trusted"] else Text("no", style="yellow"),
            _moment(row["recorded_ns"]),
            str(row["windows"]) if row["windows"] else "-",
            number(row["tokens_per_s_per_device"]),
            seconds(row["step_time_s"]),
            styled(row["note"]),
        )
    return table


def _moment(recorded_ns: int | None) -> str:
    if recorded_ns is None:
        return "-"
    return datetime.fromtimestamp(recorded_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M")
