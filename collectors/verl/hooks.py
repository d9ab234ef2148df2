"""What a hook is: one target in verl and what is recorded around a call of it.

The tables are the `HOOKS` tuples of the sibling modules. A hook never reaches training:
whatever its callbacks raise is caught and counted (see `wrap`).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_log = logging.getLogger(__name__)

#: Sibling modules that hold a `HOOKS` tuple.
TABLES = (
    "trainer",
    "samples",
    "workers",
    "weights",
    "tracking",
    "topology",
    "rollout",
    "engine",
    "pipeline",
    "agent_loop",
    "switches",
    "kernel",
)

SYNC = frozenset({"sync"})
COLOCATE_ASYNC = frozenset({"colocate_async"})
SEPARATE_ASYNC = frozenset({"separate_async"})
FULLY_ASYNC = frozenset({"fully_async"})
#: The modes of `verl.trainer.main_ppo`'s v1 trainer.
V1 = SYNC | COLOCATE_ASYNC | SEPARATE_ASYNC
ALL_MODES = V1 | FULLY_ASYNC


class HookSkipped(Exception):  # noqa: N818 - a state, not an error
    """Raised by an `install` callback whose target is not as expected; the reason is its text."""


class Call:
    """One call of a hooked function, passed to `enter` and again to `exit`.

    `obj` is the object (or class, for a classmethod) the function was called on, None for a
    plain function; `args` do not include it. `end_ns`, `result` and `error` are set when
    `exit` runs; `error` is None after a normal return. `state` is free for the hook, to carry
    something from `enter` to `exit`.
    """

    __slots__ = ("args", "end_ns", "error", "kwargs", "obj", "rec", "result", "start_ns", "state")

    def __init__(
        self,
        rec: TraceWriter,
        obj: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        start_ns: int,
    ) -> None:
        self.rec = rec
        self.obj = obj
        self.args = args
        self.kwargs = kwargs
        self.start_ns = start_ns
        self.end_ns: int | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.state: Any = None

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument given by position (not counting `obj`) or by keyword."""
        if index < len(self.args):
            return self.args[index]
        return self.kwargs.get(name, default)


def span_end(call: Call) -> None:
    """End the span that `enter` left in the call's state, if it began one."""
    if call.state is not None:
        attrs = {"error": type(call.error).__name__} if call.error is not None else None
        call.state.end(end_ns=call.end_ns, attrs=attrs)


@dataclass(frozen=True)
class Hook:
    """A target in verl and the callbacks around it.

    `target` is a function or `Class.method` of `module`. `needs` names parameters of the
    target that the callbacks read: where one is gone, the hook is skipped. `enter` runs before
    the call and `exit` after it, on return and on exception. `install` replaces both for a
    target that cannot be wrapped around a call. `modes` are those in which it should fire;
    None means all.

    A class that Ray exports by value takes its hooks along. Functions of a module arrive by
    reference and share the state of the module they run in; a closure arrives as a copy with
    copies of the globals it names, so it must name nothing but module-level functions.
    """

    name: str
    module: str
    target: str
    records: str
    enter: Callable[[Call], None] | None = None
    exit: Callable[[Call], None] | None = None
    install: Callable[[ModuleType, Hook], None] | None = None
    modes: frozenset[str] | None = None
    needs: tuple[str, ...] = ()


def table(name: str) -> tuple[Hook, ...]:
    """Return the hooks of one sibling module, none if that module cannot be imported.

    One broken table must not take the others with it, nor the training.
    """
    try:
        module = importlib.import_module(f"{__package__}.{name}")
        return tuple(module.HOOKS)
    except Exception as error:
        _log.warning("rlinsight: the hooks of `%s` are left out: %r", name, error)
        return ()


@lru_cache(maxsize=1)
def all_hooks() -> tuple[Hook, ...]:
    """Return the hooks of every table, in the order of `TABLES`."""
    return tuple(hook for name in TABLES for hook in table(name))


def __getattr__(name: str) -> Any:
    # Lazy: a table imports this module, so the tables cannot be imported while it loads.
    if name == "ALL_HOOKS":
        return all_hooks()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
