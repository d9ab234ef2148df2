"""What a source of device figures is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board


class SourceMissing(Exception):  # noqa: N818 - most machines lack most sources
    """The machine has no such source; the message says what was looked for."""


class Source(Protocol):
    """Reads figures of some devices. One thread calls it; its queries may block.

    `shortest_s` is the shortest useful time between two samples, in seconds.
    `device_uuids` has the vendor's identifier of each device by device id.
    """

    name: str
    shortest_s: float
    device_uuids: dict[str, str]

    def sample(self, board: Board) -> None:
        """Write the figures of this moment."""

    def close(self) -> None:
        """Let go of what was opened."""
