"""Which trajectory a generation request belongs to, carried from the agent loop to the server.

verl gives the server a fresh random id per attempt and nothing else. The agent loop knows the
trajectory; a context variable carries it to the client, and the client puts it in front of
that random id: a request id is opaque to every engine, so the carrier cannot break generation.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass

_MAGIC = "rli"
_SEPARATOR = "|"


@dataclass
class Trajectory:
    """One trajectory while its agent loop runs; `turns` counts its logical requests."""

    sample_uid: str | None
    group_uid: str | None
    validate: bool | None
    turns: int = 0


@dataclass
class Turn:
    """A logical request: attempt 1, and further ones after an abort. Both count from 1."""

    trajectory: Trajectory
    number: int
    attempt: int = 0


@dataclass(frozen=True)
class RequestIdentity:
    """What a server can say about a request from its id alone."""

    request_id: str
    sample_uid: str | None = None
    attempt: int | None = None
    validate: bool | None = None


#: The trajectory of the running agent-loop task.
trajectory: ContextVar[Trajectory | None] = ContextVar("rlinsight_trajectory", default=None)
#: The logical request under way; a context variable, as a trajectory may have several at once.
turn: ContextVar[Turn | None] = ContextVar("rlinsight_turn", default=None)
#: Trajectories of a group started so far within one batch: group uid -> count.
siblings: ContextVar[dict[str, int] | None] = ContextVar("rlinsight_siblings", default=None)


def begin_turn() -> Token[Turn | None] | None:
    """Begin a logical request of the running trajectory; `turn.reset` of the result ends it."""
    current = trajectory.get()
    if current is None:
        return None
    current.turns += 1
    return turn.set(Turn(current, current.turns))


def begin_attempt() -> Token[Turn | None] | None:
    """Begin an attempt, as a turn of its own (whose token is returned) where none is open."""
    token = begin_turn() if turn.get() is None else None
    current = turn.get()
    if current is not None:
        current.attempt += 1
    return token


def tag(engine_id: str) -> str:
    """Return `engine_id` with the identity of the attempt under way in front, if one is.

    The random part stays last, because verl appends suffixes to it (disaggregated prefill).
    """
    current = turn.get()
    if current is None or current.trajectory.sample_uid is None:
        return engine_id
    validate = {True: "v", False: "t", None: "?"}[current.trajectory.validate]
    place = (str(current.number), str(current.attempt), current.trajectory.sample_uid)
    return _SEPARATOR.join((_MAGIC, validate, *place, engine_id))


def parse(engine_id: str) -> RequestIdentity:
    """Read the identity back; an id without one names nothing but itself.

    The attempts of one logical request share `request_id`, which is the trajectory and turn.
    """
    parts = engine_id.split(_SEPARATOR)
    if len(parts) < 6 or parts[0] != _MAGIC:
        return RequestIdentity(engine_id)
    _, validate, turn, attempt, *uid, _random = parts
    sample_uid = _SEPARATOR.join(uid)
    return RequestIdentity(
        request_id=f"{sample_uid}#{turn}",
        sample_uid=sample_uid,
        attempt=int(attempt),
        validate={"v": True, "t": False}.get(validate),
    )
