"""Install every hook in this process, each as soon as its module has been imported."""

from __future__ import annotations

import json
import os
from functools import partial
from types import ModuleType

from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.hooks import Hook, HookSkipped, all_hooks
from rlinsight.collectors.verl.imports import when_imported

_done = False


def install_all() -> None:
    """Await the modules of all hooks that the configuration does not turn off; once."""
    global _done
    if _done:
        return
    _done = True
    off = disabled()
    for hook in all_hooks():
        if hook.name in off:
            _report(hook.name, "skipped", "turned off by the run's configuration")
        else:
            when_imported(hook.module, partial(install_one, hook))


def install_one(hook: Hook, module: ModuleType) -> None:
    """Install one hook in its imported module and report how it went; never raises."""
    try:
        wrap.apply(module, hook)
    except HookSkipped as reason:
        _report(hook.name, "skipped", str(reason))
    except Exception as error:
        _report(hook.name, "failed", f"{type(error).__name__}: {error}")
    else:
        _report(hook.name, "installed")


def disabled() -> frozenset[str]:
    """Return the hook names that RLINSIGHT_COLLECTORS turns off."""
    try:
        settings = json.loads(os.environ.get("RLINSIGHT_COLLECTORS") or "{}")
        return frozenset(settings.get("disable", ()))
    except (ValueError, AttributeError, TypeError):
        return frozenset()


def _report(name: str, status: str, reason: str | None = None) -> None:
    try:
        rec = wrap.recorder()
        if rec is not None:
            rec.hook(name, status, reason)  # type: ignore[arg-type]
    except Exception:  # noqa: S110 - reporting is all that could be done about it
        pass
