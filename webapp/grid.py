"""Tables of a page: sortable in the browser, downloadable as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import dash_ag_grid as dag
from dash import html

from rlinsight.webapp import urls

Format = Literal["text", "percent", "seconds", "number", "count", "link"]

_ROW_PX: Final = 36
_HEADER_PX: Final = 46
_MAX_PX: Final = 520

_THEME: Final = {
    "function": "themeQuartz.withParams({backgroundColor: 'var(--surface)', "
    "foregroundColor: 'var(--text)', headerBackgroundColor: 'var(--surface)', "
    "headerTextColor: 'var(--quiet)', borderColor: 'var(--line)', "
    "rowHoverColor: 'var(--raised)', selectedRowBackgroundColor: 'var(--accent-soft)', "
    "accentColor: 'var(--accent)', fontFamily: 'inherit', fontSize: 13, "
    "headerFontSize: 12, wrapperBorder: false, headerRowBorder: true,  "
    "cellHorizontalPadding: 9})"
}


@dataclass(frozen=True)
class Column:
    """One column: the field of a row, its title, how it is shown, and its width in shares.

    A `link` column leads to the address in the field `<field>_href`, where there is one.
    """

    field: str
    title: str
    format: Format = "text"
    flex: float = 1.0
    min_px: int = 90
    tooltip: str = ""
    wrap: bool = False


def grid(
    name: str,
    rows: Sequence[dict[str, Any]],
    columns: Sequence[Column],
    *,
    label: str,
    select: bool = False,
    selected: Sequence[str] = (),
    row_px: int = _ROW_PX,
) -> Any:
    """Return `rows` as a grid with the id `name`. Text is shown as text."""
    height = min(_MAX_PX, len(rows) * row_px + _HEADER_PX + 18)
    options: dict[str, Any] = {
        "theme": _THEME,
        "rowHeight": row_px,
        "headerHeight": _HEADER_PX,
        "suppressCellFocus": False,
        "enableCellTextSelection": True,
        "tooltipShowDelay": 300,
        # One Tab leaves the grid; arrow keys move within it.
        "tabToNextCell": {"function": "rl_leave()"},
        "suppressMovableColumns": True,
    }
    if select:
        options["selectionColumnDef"] = {"width": 40}
        options["rowSelection"] = {"mode": "multiRow", "enableClickSelection": False}
    return html.Div(
        dag.AgGrid(
            id=name,
            rowData=rows,
            columnDefs=[_definition(column) for column in columns],
            defaultColDef={"sortable": True, "resizable": True, "wrapHeaderText": True},
            dashGridOptions=options,
            selectedRows=[row for row in rows if row.get("id") in selected] if select else [],
            getRowId="params.data.id" if rows and "id" in rows[0] else None,
            style={"height": f"{height}px"},
        ),
        role="region",
        **{"aria-label": label},
    )


def downloads(name: str, query: Mapping[str, str]) -> list[Any]:
    """Return the links that download the table `name` for this view."""
    return [
        html.A(kind, href=urls.link(f"/download/{name}.{kind.lower()}", query), download="")
        for kind in ("CSV", "Parquet")
    ]


def _definition(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "field": column.field,
        "headerName": column.title,
        "flex": column.flex,
        "minWidth": column.min_px,
    }
    if column.tooltip:
        shown["headerTooltip"] = column.tooltip
    if column.wrap:
        shown |= {"wrapText": True, "cellClass": "wrapped"}
    if column.format in ("percent", "seconds", "number", "count"):
        function = f"rl_{column.format}(params.value)"
        return shown | {
            "valueFormatter": {"function": function},
            "type": "rightAligned",
            "sortingOrder": ["desc", "asc", None],
        }
    if column.format == "link":
        return shown | {"cellRenderer": "RunLink"}
    return shown | {"tooltipField": column.field}
