"""Run a callback right after a module was imported by somebody else.

The callback runs before the importer's `from module import name` binds anything, so a
patched name reaches every user of it. Nothing is imported by this module itself.
"""

from __future__ import annotations

import importlib.abc
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

_waiting: dict[str, list[Callback]] = {}
_lock = threading.Lock()


class _Loader(importlib.abc.Loader):
    """Stands in for the real loader during the import, and is gone from the module after it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            # Readers of `__loader__` (inspect, importlib.resources) must find the real one.
            spec.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        if spec is not None:
            _run(spec.name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds awaited modules through the other finders and puts `_Loader` around their loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                return _with_loader(spec)
        return None


def _with_loader(spec: ModuleSpec) -> ModuleSpec:
    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
        spec.loader = _Loader(spec.loader)
    return spec


def _run(name: str, module: ModuleType) -> None:
    with _lock:
        callbacks = _waiting.pop(name, [])
    for callback in callbacks:
        callback(module)


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` once module `name` is imported; now, if it already is.

    A callback that raises makes that import fail: guard what may raise.
    """
    module = sys.modules.get(name)
    if module is not None and not _initializing(module):
        callback(module)
        return
    with _lock:
        _waiting.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def waiting() -> frozenset[str]:
    """Return the modules whose callbacks have not run yet."""
    return frozenset(_waiting)
