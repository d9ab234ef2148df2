"""Does the installed verl still have what the hooks hook? For `rlinsight doctor`.

Two ways to find out: reading the sources (fast, imports nothing), or importing the modules in
a process of their own (slow, and the same check as in a run).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.hooks import Hook, HookSkipped, all_hooks

_TIMEOUT_S = 600


@dataclass(frozen=True)
class HookStatus:
    """Whether one hook would be installed, and if not why.

    `unknown` is the answer of the fast way for a method that the class may inherit, and of
    the slow way for a module that is there but cannot be imported outside a run.
    """

    name: str
    module: str
    target: str
    records: str
    modes: tuple[str, ...] | None
    status: Literal["ok", "missing", "unknown"]
    reason: str | None = None


def coverage(modules_import: bool) -> list[HookStatus]:
    """Check every hook against the installed packages, without running anything.

    With `modules_import` the modules are imported in a subprocess (about half a minute);
    without, their sources are read.
    """
    return _by_import() if modules_import else [_by_source(hook) for hook in all_hooks()]


def _status(
    hook: Hook, status: Literal["ok", "missing", "unknown"], reason: str | None = None
) -> HookStatus:
    modes = None if hook.modes is None else tuple(sorted(hook.modes))
    return HookStatus(hook.name, hook.module, hook.target, hook.records, modes, status, reason)


# -- by importing ----------------------------------------------------------------------


def _by_import() -> list[HookStatus]:
    environment = {k: v for k, v in os.environ.items() if k != "RLINSIGHT_TRACE"}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "coverage.json"
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(answer)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if not answer.exists():
            reason = f"the check itself failed: {done.stderr.strip()[-300:]}"
            return [_status(hook, "missing", reason) for hook in all_hooks()]
        rows = json.loads(answer.read_text())
    return [_status(hook, *rows[hook.name]) for hook in all_hooks()]


def _imported(hook: Hook) -> HookStatus:
    try:
        wrap.check(importlib.import_module(hook.module), hook)
    except HookSkipped as reason:
        return _status(hook, "missing", str(reason))
    except Exception as error:  # it may need what only a run sets up, such as a platform
        found = _by_source(hook)
        why = f"`{hook.module}` cannot be imported here: {error}"
        return found if found.status == "missing" else _status(hook, "unknown", why)
    return _status(hook, "ok")


def main(answer: Path) -> None:
    """Write {hook name: [status, reason]} of this interpreter's packages as JSON to `answer`."""
    found = [_imported(hook) for hook in all_hooks()]
    rows = {row["name"]: (row["status"], row["reason"]) for row in map(asdict, found)}
    answer.write_text(json.dumps(rows))


# -- by reading ------------------------------------------------------------------------


def _by_source(hook: Hook) -> HookStatus:
    path = _source_of(hook.module)
    if path is None:
        return _status(hook, "missing", f"no module `{hook.module}` is installed")
    *owner, name = hook.target.split(".")
    body = _definitions(path, owner[0] if owner else None)
    if body is None:
        return _status(hook, "missing", f"`{hook.module}` has no `{owner[0]}`")
    if name not in body:
        status: Literal["missing", "unknown"] = "unknown" if owner else "missing"
        return _status(hook, status, f"`{hook.module}` does not define `{hook.target}` itself")
    lost = [need for need in hook.needs if need not in body[name]]
    if lost:
        reason = f"`{hook.target}` no longer has the parameter {', '.join(lost)}"
        return _status(hook, "missing", reason)
    return _status(hook, "ok")


def _source_of(module: str) -> Path | None:
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)  # a top-level name is found without importing it
    for root in (spec.submodule_search_locations if spec else None) or ():
        base = Path(root, *rest)
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.exists():
                return candidate
    return None


@lru_cache(maxsize=64)
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _definitions(path: Path, owner: str | None) -> dict[str, tuple[str, ...]] | None:
    """Return {function: parameter names} of a module or of one of its classes."""
    body: list[ast.stmt] = _tree(path).body
    if owner is not None:
        classes = [n for n in body if isinstance(n, ast.ClassDef) and n.name == owner]
        if not classes:
            return None
        body = classes[-1].body
    functions = (n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f.name: _parameters(f.args) for f in functions}


def _parameters(arguments: ast.arguments) -> tuple[str, ...]:
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return tuple(argument.arg for argument in named)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
