"""Wrapping functions of any kind: what a hook sees, and that it can never disturb the call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import rlinsight
from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.hooks import Call, Hook, HookSkipped


def module_of(**contents: Any) -> types.ModuleType:
    """A module that holds `contents`, as if it had been imported."""
    module = types.ModuleType("somewhere")
    vars(module).update(contents)
    return module


class Log:
    """A hook's callbacks that keep what they saw."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def enter(self, call: Call) -> None:
        call.state = "carried"
        self.seen.append(("enter", call.obj, call.args, call.kwargs))

    def exit(self, call: Call) -> None:
        assert call.state == "carried"
        assert call.end_ns is not None
        assert call.end_ns >= call.start_ns
        self.seen.append(("exit", call.result, type(call.error)))

    def hook(self, target: str, **options: Any) -> Hook:
        name = f"{target}.{id(self)}"
        return Hook(name, "somewhere", target, "a test", self.enter, self.exit, **options)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with rlinsight.recording(tmp_path):
        yield Log()


def test_a_function_returns_what_it_returned_before(log: Log) -> None:
    def add(left: int, right: int) -> int:
        return left + right

    module = module_of(add=add)
    wrap.apply(module, log.hook("add"))
    assert module.add(1, right=2) == 3
    assert log.seen == [("enter", None, (1,), {"right": 2}), ("exit", 3, type(None))]


def test_an_exception_reaches_the_caller_and_the_hook(log: Log) -> None:
    def fail() -> None:
        raise KeyError("gone")

    module = module_of(fail=fail)
    wrap.apply(module, log.hook("fail"))
    with pytest.raises(KeyError, match="gone"):
        module.fail()
    assert log.seen[-1] == ("exit", None, KeyError)


def test_a_method_gives_the_object_and_the_arguments_apart(log: Log) -> None:
    class Trainer:
        def step(self, batch: str, size: int = 1) -> str:
            return batch * size

    module = module_of(Trainer=Trainer)
    wrap.apply(module, log.hook("Trainer.step"))
    trainer = Trainer()
    assert trainer.step("x", size=3) == "xxx"
    assert log.seen[0] == ("enter", trainer, ("x",), {"size": 3})


def test_arguments_are_found_by_position_and_by_name(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path) as rec:
        call = Call(rec, None, (7,), {"named": 8}, start_ns=0)
    assert [call.arg(0, "first"), call.arg(1, "named"), call.arg(2, "none")] == [7, 8, None]


def test_class_and_static_methods_stay_what_they_are(log: Log) -> None:
    class Manager:
        @classmethod
        def create(cls, size: int) -> tuple[type, int]:
            return cls, size

        @staticmethod
        def double(value: int) -> int:
            return 2 * value

    module = module_of(Manager=Manager)
    wrap.apply(module, log.hook("Manager.create"))
    wrap.apply(module, log.hook("Manager.double"))
    assert Manager.create(4) == (Manager, 4)
    assert Manager.double(4) == 8
    assert log.seen[0][:3] == ("enter", Manager, (4,))
    assert log.seen[2][:3] == ("enter", None, (4,))


def test_an_inherited_method_is_hooked_on_the_subclass_only(log: Log) -> None:
    class Base:
        def end(self) -> str:
            return "base"

    class Derived(Base):
        pass

    module = module_of(Base=Base, Derived=Derived)
    wrap.apply(module, log.hook("Derived.end"))
    assert Base().end() == "base"
    assert log.seen == []
    assert Derived().end() == "base"
    assert len(log.seen) == 2


def test_a_coroutine_is_timed_while_it_runs(log: Log) -> None:
    async def fetch() -> int:
        log.seen.append("running")
        await asyncio.sleep(0)
        return 5

    module = module_of(fetch=fetch)
    wrap.apply(module, log.hook("fetch"))
    assert inspect.iscoroutinefunction(module.fetch)
    assert asyncio.run(module.fetch()) == 5
    assert [entry if entry == "running" else entry[0] for entry in log.seen] == [
        "enter",
        "running",
        "exit",
    ]


def test_a_cancelled_coroutine_ends_its_call(log: Log) -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        task = asyncio.create_task(module.hang())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    module = module_of(hang=hang)
    wrap.apply(module, log.hook("hang"))
    asyncio.run(main())
    assert log.seen[-1] == ("exit", None, asyncio.CancelledError)


def test_a_generator_still_takes_what_is_sent_and_returns(log: Log) -> None:
    def talk() -> Iterator[Any]:
        heard = yield "hello"
        return heard

    module = module_of(talk=talk)
    wrap.apply(module, log.hook("talk"))
    conversation = module.talk()
    assert next(conversation) == "hello"
    with pytest.raises(StopIteration) as stopped:
        conversation.send("bye")  # type: ignore[attr-defined]
    assert stopped.value.value == "bye"
    assert log.seen[-1] == ("exit", "bye", type(None))


def test_an_async_generator_that_is_left_early_is_closed(log: Log) -> None:
    async def tokens() -> AsyncIterator[int]:
        try:
            for token in range(100):
                yield token
        finally:
            log.seen.append("closed")

    async def main() -> int:
        stream = module.tokens()
        first: int = await anext(stream)
        await stream.aclose()
        return first

    module = module_of(tokens=tokens)
    wrap.apply(module, log.hook("tokens"))
    assert asyncio.run(main()) == 0
    assert log.seen[1:] == [("exit", None, GeneratorExit), "closed"]


def test_attributes_of_a_decorated_method_survive() -> None:
    class Worker:
        def update(self, data: int) -> int:
            return data

    Worker.update.dispatch = {"mode": "all"}  # type: ignore[attr-defined]
    module = module_of(Worker=Worker)
    wrap.apply(module, Hook("attributes", "somewhere", "Worker.update", "a test"))
    assert Worker.update.dispatch == {"mode": "all"}  # type: ignore[attr-defined]
    assert list(inspect.signature(Worker.update).parameters) == ["self", "data"]
    assert Worker.update.__qualname__.endswith("Worker.update")


def test_two_hooks_share_a_target_and_the_same_hook_is_installed_once(log: Log) -> None:
    def tick() -> None: ...

    module, other = module_of(tick=tick), Log()
    for hook in (log.hook("tick"), other.hook("tick"), log.hook("tick")):
        wrap.apply(module, hook)
    module.tick()
    assert len(log.seen) == 2
    assert len(other.seen) == 2


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_a_hook_that_raises_is_counted_and_disturbs_nothing(tmp_path: Path, where: str) -> None:
    def broken(call: Call) -> None:
        raise ZeroDivisionError("in the hook")

    def work() -> str:
        return "done"

    module = module_of(work=work)
    hook = Hook(f"broken.{where}", "somewhere", "work", "a test", **{where: broken})
    with rlinsight.recording(tmp_path) as rec:
        wrap.apply(module, hook)
        assert [module.work(), module.work()] == ["done", "done"]
        assert rec.report.hooks[f"broken.{where}"]["errors"] == 2
        assert "ZeroDivisionError: in the hook" in rec.report.hooks[f"broken.{where}"]["reason"]


def test_time_in_hooks_is_accounted_and_the_call_itself_is_not(log: Log, tmp_path: Path) -> None:
    clock = iter(range(0, 1000, 5))

    def work() -> None:
        next(clock)  # the call takes 5 units of the clock that times the hooks
        next(clock)

    module = module_of(work=work)
    wrap.apply(module, log.hook("work"))
    rec = wrap.recorder()
    assert rec is not None
    before = rec.report.hook_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrap.time, "perf_counter_ns", lambda: next(clock))
        module.work()
    assert rec.report.hook_ns - before == 10  # 5 around `enter`, 5 around `exit`


def test_nothing_runs_while_recording_is_off() -> None:
    def work() -> int:
        return 1

    log, module = Log(), module_of(work=work)
    wrap.apply(module, log.hook("work"))
    assert module.work() == 1
    assert log.seen == []


def test_a_missing_target_and_a_lost_parameter_are_said_plainly() -> None:
    def generate(prompt: str) -> str:
        return prompt

    module = module_of(generate=generate, limit=3)
    with pytest.raises(HookSkipped, match="`somewhere` has no `gone`"):
        wrap.check(module, Hook("h", "somewhere", "gone", "a test"))
    with pytest.raises(HookSkipped, match="`somewhere` has no `Gone`"):
        wrap.check(module, Hook("h", "somewhere", "Gone.method", "a test"))
    with pytest.raises(HookSkipped, match="no longer has the parameter request_id"):
        wrap.check(module, Hook("h", "somewhere", "generate", "a", needs=("prompt", "request_id")))
    with pytest.raises(HookSkipped, match="expected a function, found int"):
        wrap.apply(module, Hook("h", "somewhere", "limit", "a test"))


def auto_await(function: Any) -> Any:
    """Decides like verl's decorator: the caller's frame tells whether it will await."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        coroutine = function(*args, **kwargs)
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]
        awaited = caller is not None and caller.f_code.co_flags & inspect.CO_COROUTINE
        return coroutine if awaited else asyncio.run(coroutine)

    return wrapper


def in_module(name: str, function: Any) -> Any:
    """A copy of `function` whose globals say that it belongs to module `name`."""
    namespace = {**function.__globals__, "__name__": name}
    copied = types.FunctionType(function.__code__, namespace, function.__name__)
    namespace[function.__name__] = copied
    return copied


def test_auto_await_stays_outermost(log: Log) -> None:
    decorate = in_module("verl.utils.ray_utils", auto_await)

    class Manager:
        @decorate
        async def sync(self, version: int) -> int:
            return version

    async def from_a_coroutine() -> int:
        result: int = await Manager().sync(2)
        return result

    module = module_of(Manager=Manager)
    wrap.apply(module, log.hook("Manager.sync"))
    assert Manager().sync(1) == 1  # called without await: the result, not a coroutine
    assert asyncio.run(from_a_coroutine()) == 2
    assert [entry[1] for entry in log.seen if entry[0] == "exit"] == [1, 2]
