"""Put a hook around a function: plain, coroutine, generator, async generator, or a method.

The wrappers may be pickled by value together with a `@ray.remote` class, so they close over
nothing but the wrapped function and the hook (both picklable), and everything else they use
is a module-level function that pickles by reference.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlinsight.collectors.verl.hooks import Call, Hook, HookSkipped
from rlinsight.trace.recorder import current

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_log = logging.getLogger(__name__)
_MARK = "__rlinsight_hooks__"


def apply(module: ModuleType, hook: Hook) -> None:
    """Install a hook in its imported module.

    Raises `HookSkipped` where the target is missing or is not what the hook expects.
    """
    if hook.install is not None:
        hook.install(module, hook)
        return
    owner, name = locate(module, hook.target)
    raw = inspect.getattr_static(owner, name)
    if hook.name in getattr(_function(raw), _MARK, ()):
        return
    setattr(owner, name, wrapped(raw, hook, is_method=owner is not module))


def check(module: ModuleType, hook: Hook) -> None:
    """Raise `HookSkipped` if the hook could not be installed in this module."""
    owner, name = locate(module, hook.target)
    require_parameters(_function(inspect.getattr_static(owner, name)), hook)


def locate(module: ModuleType, target: str) -> tuple[Any, str]:
    """Return (owner, attribute name) of `function` or `Class.method` in a module.

    The owner of a method of a `@ray.remote` class is the class that Ray exports.
    """
    *path, name = target.split(".")
    owner: Any = module
    for part in path:
        if not hasattr(owner, part):
            raise HookSkipped(f"`{module.__name__}` has no `{part}`")
        owner = actor_class(getattr(owner, part))
    try:
        inspect.getattr_static(owner, name)
    except AttributeError:
        raise HookSkipped(f"`{module.__name__}` has no `{target}`") from None
    return owner, name


def actor_class(cls: Any) -> Any:
    """Return the class behind a `@ray.remote` class, and any other class as it is."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class


def wrapped(raw: Any, hook: Hook, *, is_method: bool) -> Any:
    """Return `raw` (a class or module attribute) with the hook around its calls."""
    function = _function(raw)
    require_parameters(function, hook)
    if isinstance(raw, staticmethod):
        return staticmethod(_around(function, hook, is_method=False))
    if isinstance(raw, classmethod):
        return classmethod(_around(function, hook, is_method=True))
    return _around(function, hook, is_method=is_method)


def _function(raw: Any) -> Callable[..., Any]:
    function = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    if not inspect.isfunction(function):
        raise HookSkipped(f"expected a function, found {type(function).__name__}")
    return function


def require_parameters(function: Callable[..., Any], hook: Hook) -> None:
    """Raise `HookSkipped` if the function lost a parameter that the hook reads."""
    if not hook.needs:
        return
    known = inspect.signature(function).parameters
    lost = [name for name in hook.needs if name not in known]
    if lost:
        raise HookSkipped(f"`{hook.target}` no longer has the parameter {', '.join(lost)}")


def _around(function: Callable[..., Any], hook: Hook, *, is_method: bool) -> Callable[..., Any]:
    again = _auto_await(function)
    if again is not None:
        # verl's @auto_await looks at its caller's frame to decide between a coroutine and a
        # result, so it has to stay outermost: the coroutine function inside is wrapped.
        inner = inspect.unwrap(function, stop=inspect.iscoroutinefunction)
        return again(_around(inner, hook, is_method=is_method))  # type: ignore[no-any-return]
    wrapper = _wrapper_of(function, hook, is_method)
    functools.update_wrapper(wrapper, function)
    setattr(wrapper, _MARK, (*getattr(function, _MARK, ()), hook.name))
    return wrapper


def _auto_await(function: Callable[..., Any]) -> Any:
    """Return verl's `auto_await` if it made this function, else None."""
    if inspect.iscoroutinefunction(function) or not hasattr(function, "__wrapped__"):
        return None
    namespace = getattr(function, "__globals__", {})
    if namespace.get("__name__") != "verl.utils.ray_utils":
        return None
    return namespace.get("auto_await")


def _wrapper_of(function: Callable[..., Any], hook: Hook, is_method: bool) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):
        return _async_generator(function, hook, is_method)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, hook, is_method)
    if inspect.isgeneratorfunction(function):
        return _generator(function, hook, is_method)
    return _plain(function, hook, is_method)


def _plain(function: Callable[..., Any], hook: Hook, is_method: bool) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = begin(hook, is_method, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            finish(hook, call, None, error)
            raise
        finish(hook, call, result, None)
        return result

    return wrapper


def _coroutine(function: Callable[..., Any], hook: Hook, is_method: bool) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = begin(hook, is_method, args, kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            finish(hook, call, None, error)
            raise
        finish(hook, call, result, None)
        return result

    return wrapper


def _generator(function: Callable[..., Any], hook: Hook, is_method: bool) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(hook, is_method, args, kwargs)
        try:
            result = yield from function(*args, **kwargs)
        except BaseException as error:
            finish(hook, call, None, error)
            raise
        finish(hook, call, result, None)
        return result

    return wrapper


def _async_generator(
    function: Callable[..., Any], hook: Hook, is_method: bool
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        call = begin(hook, is_method, args, kwargs)
        items = function(*args, **kwargs)
        try:
            async for item in items:
                yield item
        except BaseException as error:
            finish(hook, call, None, error)
            raise
        else:
            finish(hook, call, None, None)
        finally:
            await items.aclose()

    return wrapper


def recorder() -> TraceWriter | None:
    """Return this process's recorder, None when recording is off or cannot be started."""
    try:
        return current()
    except Exception as error:
        _log.debug("rlinsight: no recorder: %r", error)
        return None


def begin(
    hook: Hook, is_method: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call | None:
    """Start a call and run the hook's `enter`; None when recording is off."""
    rec = recorder()  # the first call starts it, which is start-up and not time in a hook
    if rec is None:
        return None
    began = time.perf_counter_ns()
    obj, rest = (args[0], args[1:]) if is_method and args else (None, args)
    call = Call(rec, obj, rest, kwargs, rec.now_ns())
    if hook.enter is not None:
        try:
            hook.enter(call)
        except Exception as error:
            failed(rec, hook.name, error)
    rec.add_hook_time(time.perf_counter_ns() - began)
    return call


def finish(hook: Hook, call: Call | None, result: Any, error: BaseException | None) -> None:
    """End a call and run the hook's `exit`."""
    if call is None:
        return
    began = time.perf_counter_ns()
    call.end_ns = call.rec.now_ns()
    call.result, call.error = result, error
    if hook.exit is not None:
        try:
            hook.exit(call)
        except Exception as problem:
            failed(call.rec, hook.name, problem)
    call.rec.add_hook_time(time.perf_counter_ns() - began)


def failed(rec: TraceWriter, name: str, error: Exception) -> None:
    """Count a hook that raised; the reason that is kept is the first."""
    rec.hook(name, "failed", f"{type(error).__name__}: {error}")
