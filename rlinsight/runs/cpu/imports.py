"""Runs a function right after a module has been imported, without importing it ourselves."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], object]


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback` with the module `name`: now if it is loaded, else right after its import."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.callbacks.setdefault(name, []).append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module, then wraps its execution."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self._asking = threading.local()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        # Another finder of this kind may ask us back; then it is its turn to answer.
        if fullname not in self.callbacks or getattr(self._asking, "name", None) == fullname:
            return None
        self._asking.name = fullname
        try:
            spec = self._ask_others(fullname, path, target)
        finally:
            self._asking.name = None
        if spec is not None and spec.loader is not None:
            _call_after_execution(spec.loader, lambda module: self._run(fullname, module))
        return spec

    def _ask_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                return spec  # type: ignore[no-any-return]
        return None

    def _run(self, fullname: str, module: ModuleType) -> None:
        for callback in self.callbacks.pop(fullname, []):
            callback(module)


def _call_after_execution(loader: object, then: Callback) -> None:
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        execute(module)
        then(module)

    # On the instance: the loader keeps its type, which importlib.resources and inspect look at.
    loader.exec_module = exec_module  # type: ignore[attr-defined]


_FINDER = _Finder()
