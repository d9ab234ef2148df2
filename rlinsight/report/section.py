"""A titled table: what every renderer draws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A table with a title; `note` stands below it. Cells are plain text.

    `spare` are columns that only explain: a terminal that is too narrow leaves them out.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    spare: tuple[str, ...] = ()
