"""Both ends prove that they know the run's secret, before either says anything else.

The trainer sends a nonce; the receiver answers with its rank, a nonce of its own and an HMAC over
all of it; the trainer checks it and answers with its own HMAC. Every message has a fixed size of
a few bytes, so a stranger can make the trainer neither read nor allocate more than that. The
session, a random number that travels by Ray, keeps receivers of an earlier sync out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from dataclasses import dataclass

from rlinsight.runs.cpu.transport.errors import RefusedError
from rlinsight.runs.cpu.transport.wire import Channel, Deadline, read_exactly, write

SESSION_BYTES = 16
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_GREETING = struct.Struct(f">8s{_NONCE_BYTES}s")
_ANSWER = struct.Struct(f">I{_NONCE_BYTES}s{_PROOF_BYTES}s")
_VERDICT = struct.Struct(f">B{_PROOF_BYTES}s")
_MAGIC = b"RLWSYNC1"


@dataclass(frozen=True)
class _Context:
    """What both ends know once nonces are exchanged."""

    secret: bytes
    session: bytes
    trainer_nonce: bytes
    receiver_nonce: bytes
    rank: int

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 bytes that only those who know the secret can compute."""
        parts = (purpose, self.session, self.trainer_nonce, self.receiver_nonce)
        message = b"|".join(hashlib.sha256(part).digest() for part in parts)
        message += self.rank.to_bytes(4, "big")
        return hmac.new(self.secret, message, hashlib.sha256).digest()

    def proves(self, purpose: bytes, proof: bytes) -> bool:
        """Whether `proof` was computed with the secret."""
        return hmac.compare_digest(self.derive(purpose), proof)


def as_trainer(
    sock: socket.socket, *, secret: bytes, session: bytes, deadline: Deadline
) -> tuple[int, Channel]:
    """Admit a receiver and return its rank and the channel to it. Raises RefusedError."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    write(sock, _GREETING.pack(_MAGIC, nonce), deadline)
    answer = bytes(read_exactly(sock, _ANSWER.size, deadline))
    rank, receiver_nonce, proof = _ANSWER.unpack(answer)
    context = _Context(secret, session, nonce, receiver_nonce, rank)
    if not context.proves(b"receiver", proof):
        write(sock, _VERDICT.pack(0, bytes(_PROOF_BYTES)), deadline)
        raise RefusedError("it did not prove that it knows this run's secret and session")
    write(sock, _VERDICT.pack(1, context.derive(b"trainer")), deadline)
    to, back = context.derive(b"to receiver"), context.derive(b"to trainer")
    return rank, Channel(sock, send_key=to, receive_key=back)


def as_receiver(
    sock: socket.socket, *, secret: bytes, session: bytes, rank: int, deadline: Deadline
) -> Channel:
    """Introduce ourselves to the trainer and return the channel to it. Raises RefusedError."""
    greeting = bytes(read_exactly(sock, _GREETING.size, deadline))
    magic, trainer_nonce = _GREETING.unpack(greeting)
    if magic != _MAGIC:
        raise RefusedError(f"it is no trainer of a run: it greets with {magic!r}")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    context = _Context(secret, session, trainer_nonce, nonce, rank)
    write(sock, _ANSWER.pack(rank, nonce, context.derive(b"receiver")), deadline)
    accepted, proof = _VERDICT.unpack(bytes(read_exactly(sock, _VERDICT.size, deadline)))
    if not accepted:
        raise RefusedError("it refused us: our secret or session is another one")
    if not context.proves(b"trainer", proof):
        raise RefusedError("it did not prove that it knows this run's secret")
    to, back = context.derive(b"to receiver"), context.derive(b"to trainer")
    return Channel(sock, send_key=back, receive_key=to)
