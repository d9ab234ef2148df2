"""Lets receivers in, one short handshake each, whatever else connects meanwhile."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections import deque

from rlinsight.runs.cpu.transport import handshake
from rlinsight.runs.cpu.transport.errors import WeightSyncError
from rlinsight.runs.cpu.transport.sockets import listen, tune
from rlinsight.runs.cpu.transport.wire import Channel, Deadline

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
#: Connections that have not proved themselves; beyond it the oldest has to go.
MAX_PENDING = 64


class Admission:
    """A listening socket that hands out channels to authenticated receivers, by rank."""

    def __init__(self, host: str, secret: bytes) -> None:
        self.session = secrets.token_bytes(handshake.SESSION_BYTES)
        self._secret = secret
        self._listener = listen(host)
        self.host, self.port = self._listener.getsockname()[:2]
        self._changed = threading.Condition()
        self._channels: dict[int, Channel] = {}
        self._pending: deque[socket.socket] = deque()
        self._refusals: list[str] = []
        self._closed = False
        threading.Thread(target=self._accept, name="weights-accept", daemon=True).start()

    def take(self, receivers: int, timeout_s: float) -> dict[int, Channel]:
        """Wait for ranks 0 to `receivers` - 1, stop listening, and return their channels.

        The caller owns them. Raises WeightSyncError naming the ranks that did not come in time.
        """
        wanted = set(range(receivers))
        end = time.monotonic() + timeout_s
        with self._changed:
            while not wanted <= self._channels.keys():
                remaining = end - time.monotonic()
                if remaining <= 0:
                    raise WeightSyncError(self._missing(wanted, timeout_s))
                self._changed.wait(remaining)
            taken = {rank: self._channels.pop(rank) for rank in sorted(wanted)}
        self.close()
        return taken

    def close(self) -> None:
        """Stop listening, and drop everyone who was not taken. Idempotent."""
        with self._changed:
            self._closed = True
            leftover: list[socket.socket | Channel] = [*self._pending, *self._channels.values()]
            self._pending.clear()
            self._channels.clear()
        _shut(self._listener)
        for connection in leftover:
            connection.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    log.warning("the weight sync's port cannot accept: %s", error)
                    time.sleep(0.1)
                continue
            self._make_room(sock)
            name = f"{address[0]}:{address[1]}"
            threading.Thread(target=self._greet, args=(sock, name), daemon=True).start()

    def _make_room(self, sock: socket.socket) -> None:
        with self._changed:
            self._pending.append(sock)
            evicted = self._pending.popleft() if len(self._pending) > MAX_PENDING else None
        if evicted is not None:
            _shut(evicted)

    def _greet(self, sock: socket.socket, peer: str) -> None:
        try:
            tune(sock)
            deadline = Deadline(HANDSHAKE_S)
            rank, channel = handshake.as_trainer(
                sock, secret=self._secret, session=self.session, deadline=deadline
            )
        except (OSError, WeightSyncError) as error:
            self._refuse(sock, f"{peer}: {error}")
            return
        self._admit(sock, rank, channel)

    def _admit(self, sock: socket.socket, rank: int, channel: Channel) -> None:
        with self._changed:
            self._forget(sock)
            # A receiver that lost its first connection tries again: the newer one counts.
            replaced = self._channels.pop(rank, None)
            late = self._closed
            if not late:
                self._channels[rank] = channel
            self._changed.notify_all()
        for unused in (replaced, channel if late else None):
            if unused is not None:
                unused.close()

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        sock.close()
        with self._changed:
            self._forget(sock)
            if self._closed:
                return
            self._refusals.append(reason)
        log.warning("the weight sync refused a peer: %s", reason)

    def _forget(self, sock: socket.socket) -> None:
        if sock in self._pending:
            self._pending.remove(sock)

    def _missing(self, wanted: set[int], timeout_s: float) -> str:
        missing = ", ".join(str(rank) for rank in sorted(wanted - self._channels.keys()))
        text = (
            f"expected {len(wanted)} receivers at {self.host}:{self.port} within {timeout_s:g} s, "
            f"rank(s) {missing} did not come"
        )
        if self._refusals:
            text += f"; {len(self._refusals)} peer(s) refused, last {self._refusals[-1]}"
        return text


def _shut(sock: socket.socket) -> None:
    # Closing alone does not wake a thread that waits on the socket.
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
