"""What verl holds instead of the handles of rollout servers and their workers.

verl only calls `handle.method.remote(...)` and awaits, or hands to `ray.get`, what that
returns. These objects do the same and are pickled wherever verl sends them; all of them reach
the one host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import ray

from rlinsight.runs.emulated.host import ACTOR, Ask, Host

#: Keys that the agent loop adds to the sampling parameters of its requests (see `patches`).
PROMPT: Final = "rlinsight_prompt"
INDEX: Final = "rlinsight_index"
SENT: Final = "rlinsight_sent_ns"

#: Everything a response consists of; no special token of the example's tokenizer.
_TOKEN: Final = 40
#: More than verl ever has in flight.
_CONCURRENCY: Final = 1_000_000


def host() -> Any:
    """Return the handle of the host, which is started by the first call of all."""
    actor = ray.remote(Host).options(
        name=ACTOR, get_if_exists=True, num_cpus=0, max_concurrency=_CONCURRENCY
    )
    return actor.remote()


class _Method:
    """`handle.method`, of which only `remote` is used."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


class _Handle:
    """Finds what answers `handle.<method>.remote(...)` as the attribute `on_<method>`."""

    def __getattr__(self, name: str) -> _Method:
        if name.startswith(("_", "on_")):
            raise AttributeError(name)
        return _Method(getattr(type(self), f"on_{name}").__get__(self))


class ServerHandle(_Handle):
    """Stands for the rollout server of one replica."""

    def __init__(self, actor: Any, rank: int) -> None:
        self._actor, self._rank = actor, rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._actor, self._rank))

    def __hash__(self) -> int:
        return hash(self._rank)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerHandle) and other._rank == self._rank

    async def on_generate(
        self, request_id: str, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        """Generate: only sizes travel to the host, the tokens are made here."""
        from verl.workers.rollout.replica import TokenOutput

        ask = _ask(request_id, len(prompt_ids), sampling_params)
        tokens, reason, version = await self._actor.generate.remote(self._rank, ask)
        wants_log_probs = bool(sampling_params.get("logprobs"))
        return TokenOutput(
            token_ids=[_TOKEN] * tokens,
            log_probs=[-1.0] * tokens if wants_log_probs else None,
            stop_reason=reason,
            num_preempted=None,
            extra_fields={"global_steps": version, "num_cached_tokens": None},
        )

    def on_set_global_steps(self, global_steps: int) -> Any:
        """Weights of the hybrid replicas are set where they are copied; nothing to do."""
        return self._actor.nothing.remote(global_steps)


def _ask(request_id: str, prompt_tokens: int, sampling: dict[str, Any]) -> Ask:
    budget = sampling.get("max_tokens", sampling.get("max_new_tokens"))
    return Ask(
        engine_id=request_id,
        prompt_tokens=prompt_tokens,
        max_tokens=None if budget is None else int(budget),
        # A client of the user's own may come without our keys: its requests differ, too.
        prompt=str(sampling.get(PROMPT, request_id)),
        index=str(sampling.get(INDEX, 0)),
        sent_ns=sampling.get(SENT),
    )


class WorkerHandle(_Handle):
    """Stands for the engine workers of all standalone replicas in a weight sync."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._actor,))

    def on_execute_checkpoint_engine(self, method: str, *_: Any, **__: Any) -> Any:
        """Answer one step of setting up or ending a transfer."""
        if method == "prepare":
            return self._actor.prepare.remote()
        return self._actor.nothing.remote()

    def on_update_weights(self, global_steps: int | None = None) -> Any:
        """Receive weights."""
        return self._actor.receive.remote(None, global_steps)


_waiting: dict[tuple[Any, ...], tuple[list[int], asyncio.Future[Any]]] = {}


async def together(actor: Any, method: str, rank: int, **arguments: Any) -> None:
    """Call a control method for a replica, together with all that ask for it in this tick.

    verl asks every replica at once; one message to the host then serves all of them.
    """
    loop = asyncio.get_running_loop()
    key = (id(loop), method, *sorted(arguments.items()))
    if key not in _waiting:
        _waiting[key] = ([], loop.create_future())
        loop.call_soon(lambda: loop.create_task(_send(actor, method, key, arguments)))
    ranks, done = _waiting[key]
    ranks.append(rank)
    await asyncio.shield(done)


async def _send(actor: Any, method: str, key: tuple[Any, ...], arguments: dict[str, Any]) -> None:
    ranks, done = _waiting.pop(key)
    call: Awaitable[Any] = getattr(actor, method).remote(ranks, **arguments)
    try:
        done.set_result(await call)
    except Exception as error:
        done.set_exception(error)
