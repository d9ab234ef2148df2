"""Which trajectory a generation request belongs to, carried from the agent loop to the server.

verl gives the server a fresh random id per attempt and nothing else. The agent loop knows the
trajectory; a context variable carries it to the client, and the client puts it in front of
that random id: a request id is opaque to every engine, so the carrier cannot break generation.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

_MAGIC = "rli"
_SEPARATOR = "|"


@dataclass
class Trajectory:
    """One trajectory while its agent loop runs.

    `turn` counts its logical requests and `attempt` the tries of the current one, both from
    1: an aborted attempt is tried again within the same turn.
    """

    sample_uid: str | None
    group_uid: str | None
    validate: bool | None
    turn: int = 0
    attempt: int = 0
    in_turn: bool = False

    def begin_turn(self) -> None:
        """A new logical request begins."""
        self.turn += 1
        self.attempt = 0

    def begin_attempt(self) -> None:
        """One attempt begins; outside `in_turn` it is a logical request of its own."""
        if not self.in_turn:
            self.begin_turn()
        self.attempt += 1


@dataclass(frozen=True)
class RequestIdentity:
    """What a server can say about a request from its id alone."""

    request_id: str
    sample_uid: str | None = None
    attempt: int | None = None
    validate: bool | None = None


#: The trajectory of the running agent-loop task.
trajectory: ContextVar[Trajectory | None] = ContextVar("rlinsight_trajectory", default=None)
#: Trajectories of a group started so far within one batch: group uid -> count.
siblings: ContextVar[dict[str, int] | None] = ContextVar("rlinsight_siblings", default=None)


def tag(engine_id: str, current: Trajectory | None) -> str:
    """Return `engine_id` with the identity of the trajectory in front.

    The random part stays last, because verl appends suffixes to it (disaggregated prefill).
    """
    if current is None or current.sample_uid is None:
        return engine_id
    validate = {True: "v", False: "t", None: "?"}[current.validate]
    parts = (_MAGIC, validate, str(current.turn), str(current.attempt), current.sample_uid)
    return _SEPARATOR.join((*parts, engine_id))


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
