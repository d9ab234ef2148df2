"""Bounds of a kernel window: which stages verl's profiler collects, for how long, and its export.

verl profiles every stage of a chosen step, in full, and waits for the file. Here stages that
were not asked for are left out, collection ends after `max_seconds` at the next micro-batch,
and training waits for the export no longer than that again; the export goes on beside it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rlinsight.collectors.verl.hooks import Call, Hook, HookSkipped
from rlinsight.collectors.verl.rank import rank
from rlinsight.collectors.verl.wrap import recorder


@dataclass(frozen=True)
class Limits:
    """Stages to collect, and the seconds each may take."""

    roles: frozenset[str]
    max_seconds: float


def limits() -> Limits | None:
    """Return what RLINSIGHT_COLLECTORS says of kernel windows, None for nothing."""
    try:
        found = json.loads(os.environ.get("RLINSIGHT_COLLECTORS") or "{}").get("kernel")
        return Limits(frozenset(found["roles"]), float(found["max_seconds"])) if found else None
    except (ValueError, AttributeError, TypeError, KeyError):
        return None


class NoWindow:
    """Stands for the profiler of a stage that was not asked for."""

    def start(self) -> None:
        """Collect nothing."""

    def stop(self) -> None:
        """Nothing was collected."""


class Window:
    """One stage that is collected: `profiler` with an end that may come early, and only once."""

    def __init__(self, profiler: Any, role: str, step: Any, max_seconds: float) -> None:
        self._profiler, self._role, self._step = profiler, role, step
        self._max_s = max_seconds
        self._began = 0.0
        self._running = False
        self._cut = False
        self._export_s: float | None = None
        export = profiler.on_trace_ready
        profiler.on_trace_ready = lambda ready: self._bounded_export(export, ready)

    def start(self) -> None:
        """Begin to collect."""
        global _window
        self._profiler.start()
        self._began, self._running = time.monotonic(), True
        _window = self

    def stop(self) -> None:
        """End collecting, if it has not been ended yet, and write the file."""
        global _window
        if not self._running:
            return
        _window, self._running = None, False
        collected_s = time.monotonic() - self._began
        self._profiler.stop()
        self._note(collected_s)

    def check(self) -> None:
        """End collecting once it has taken long enough."""
        if self._running and time.monotonic() - self._began > self._max_s:
            self._cut = True
            self.stop()

    def _bounded_export(self, export: Callable[[Any], None], ready: Any) -> None:
        began = time.monotonic()
        thread = threading.Thread(
            target=export, args=(ready,), name="rlinsight-kernel-export", daemon=False
        )
        thread.start()
        thread.join(self._max_s)
        self._export_s = None if thread.is_alive() else time.monotonic() - began

    def _note(self, collected_s: float) -> None:
        rec = recorder()
        if rec is not None:
            attrs = {
                "role": self._role,
                "step": self._step,
                "collected_s": round(collected_s, 6),
                "cut": self._cut,
                "export_s": self._export_s,
            }
            rec.marker("kernel_profile", lane=rank.lane or rec.lane, attrs=attrs)


#: The window that collects at the moment; a process has one profiler at most.
_window: Window | None = None


def _install(module: ModuleType, hook: Hook) -> None:
    original = getattr(module, hook.target, None)
    if original is None:
        raise HookSkipped(f"`{module.__name__}` has no `{hook.target}`")

    def get_torch_profiler(*args: Any, **kwargs: Any) -> Any:
        asked = limits()
        role = kwargs.get("role")
        if asked is None or role is None:
            return original(*args, **kwargs)
        if role not in asked.roles:
            return NoWindow()
        profiler = original(*args, **kwargs)
        return Window(profiler, str(role), kwargs.get("profile_step"), asked.max_seconds)

    setattr(module, hook.target, get_torch_profiler)


def _micro_batch(_: Call) -> None:
    if _window is not None:
        _window.check()


HOOKS = (
    Hook(
        name="kernel.window",
        module="verl.utils.profiler.torch_profile",
        target="get_torch_profiler",
        records="how long a kernel window collected and how long its file took",
        install=_install,
    ),
    Hook(
        name="kernel.limit",
        module="verl.workers.engine.fsdp.transformer_impl",
        target="FSDPEngineWithLMHead.forward_step",
        records="nothing; ends a kernel window that has collected for long enough",
        enter=_micro_batch,
    ),
)
