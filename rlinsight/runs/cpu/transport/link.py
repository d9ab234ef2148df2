"""A receiver's end: the connection to the trainer that sends the weights."""

from __future__ import annotations

import socket
import time

from rlinsight.runs.cpu.transport import handshake
from rlinsight.runs.cpu.transport.errors import ClosedError, RefusedError, WeightSyncError
from rlinsight.runs.cpu.transport.sockets import tune
from rlinsight.runs.cpu.transport.wire import Channel, Deadline

_RETRY_S = 0.1


def connect(
    host: str, port: int, *, secret: bytes, session: bytes, rank: int, timeout_s: float
) -> Channel:
    """Connect to the trainer and authenticate, trying again until `timeout_s` has passed.

    Raises RefusedError at once when either side does not know the secret, WeightSyncError when the
    trainer cannot be reached in time.
    """
    deadline = Deadline(timeout_s)
    while True:
        try:
            return _attempt(host, port, secret, session, rank, deadline)
        except RefusedError as error:
            raise RefusedError(
                f"receiver {rank} and the trainer at {host}:{port} do not agree: {error}; "
                "all processes of a run must have the same RLINSIGHT_SECRET"
            ) from None
        except (OSError, ClosedError) as error:
            if deadline.passed:
                raise WeightSyncError(
                    f"receiver {rank} could not reach the trainer at {host}:{port} within "
                    f"{timeout_s:g} s: {error}"
                ) from error
        time.sleep(_RETRY_S)


def _attempt(
    host: str, port: int, secret: bytes, session: bytes, rank: int, deadline: Deadline
) -> Channel:
    sock = socket.create_connection((host, port), timeout=deadline.remaining_s)
    try:
        tune(sock)
        return handshake.as_receiver(
            sock, secret=secret, session=session, rank=rank, deadline=deadline
        )
    except BaseException:
        sock.close()
        raise
