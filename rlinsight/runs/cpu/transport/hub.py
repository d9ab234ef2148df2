"""The trainer's end: sends every frame to all receivers and waits until all have used it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlinsight.runs.cpu.transport.errors import WeightSyncError
from rlinsight.runs.cpu.transport.wire import Channel, Deadline, Kind

_MAX_THREADS = 16


class Hub:
    """Channels to all receivers of a sync."""

    def __init__(self, channels: Mapping[int, Channel], *, timeout_s: float) -> None:
        self._channels = dict(channels)
        self._timeout_s = timeout_s
        threads = max(1, min(len(self._channels), _MAX_THREADS))
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="weights-send")

    def send(self, kind: Kind, text: Any, payload: bytes | bytearray = b"") -> None:
        """Send one frame to all receivers and wait for their acknowledgements.

        Raises WeightSyncError naming each receiver that failed or was not done in time.
        """
        jobs = {
            rank: self._threads.submit(self._deliver, channel, kind, text, payload)
            for rank, channel in self._channels.items()
        }
        problems = [
            f"receiver {rank}: {error}"
            for rank, job in jobs.items()
            if (error := job.exception()) is not None
        ]
        if problems:
            raise WeightSyncError(f"the weights did not arrive everywhere; {'; '.join(problems)}")

    def _deliver(self, channel: Channel, kind: Kind, text: Any, payload: bytes | bytearray) -> None:
        deadline = Deadline(self._timeout_s)
        _or_say(
            "did not take a frame",
            self._timeout_s,
            lambda: channel.send(kind, text, payload, deadline=deadline),
        )
        _or_say(
            "did not acknowledge a frame", self._timeout_s, lambda: _await_ack(channel, deadline)
        )

    def close(self) -> None:
        """Close all channels; a receiver that still waits sees the end. Idempotent."""
        for channel in self._channels.values():
            channel.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _await_ack(channel: Channel, deadline: Deadline) -> None:
    frame = channel.receive(max_payload_bytes=0, deadline=deadline)
    if frame.kind is not Kind.ACK:
        raise WeightSyncError(f"expected an acknowledgement, found {frame.kind.name}")


def _or_say(failure: str, timeout_s: float, action: Callable[[], None]) -> None:
    try:
        action()
    except TimeoutError:
        raise WeightSyncError(f"{failure} within {timeout_s:g} s") from None
    except OSError as error:
        raise WeightSyncError(f"{failure}: {error}") from error
