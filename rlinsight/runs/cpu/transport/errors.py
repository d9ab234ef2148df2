"""What goes wrong between a trainer and its receivers."""

from __future__ import annotations

from rlinsight.errors import RlinsightError


class WeightSyncError(RlinsightError):
    """A weight sync that cannot be completed."""


class RefusedError(WeightSyncError):
    """The peer did not prove that it belongs to this run, or said that we did not."""


class ClosedError(WeightSyncError):
    """The peer closed the connection."""
