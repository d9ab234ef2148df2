"""The tables of hooks, held against the installed verl."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from rlinsight.collectors.verl import coverage as coverage_module
from rlinsight.collectors.verl import hooks
from rlinsight.collectors.verl.coverage import coverage
from rlinsight.collectors.verl.hooks import ALL_MODES, TABLES, Hook, all_hooks, table


def test_every_table_is_there_and_names_are_unique() -> None:
    for name in TABLES:
        module = importlib.import_module(f"rlinsight.collectors.verl.{name}")
        assert table(name) == tuple(module.HOOKS)
    names = [hook.name for hook in all_hooks()]
    assert len(names) == len(set(names)) > 50


def test_every_hook_says_what_it_records_and_does_something() -> None:
    for hook in all_hooks():
        assert hook.records, hook.name
        assert hook.enter or hook.exit or hook.install, hook.name
        assert hook.modes is None or hook.modes <= ALL_MODES, hook.name


def test_a_table_that_cannot_be_imported_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[tuple[object, ...]] = []
    # Not `caplog`: what other tests import (Ray, vLLM) switches existing loggers off.
    monkeypatch.setattr(hooks._log, "warning", lambda *args: said.append(args))
    assert table("no_such_table") == ()
    assert "no_such_table" in said[0]


def test_the_installed_verl_has_every_target() -> None:
    assert [s for s in coverage(modules_import=False) if s.status == "missing"] == []


@pytest.mark.e2e
def test_importing_verl_confirms_it() -> None:
    found = coverage(modules_import=True)
    assert [s for s in found if s.status == "missing"] == []
    # Rollout servers cannot be imported where vLLM is not what verl expects, as on a CPU.
    assert {s.module for s in found if s.status == "unknown"} <= {
        "verl.workers.rollout.vllm_rollout.vllm_async_server"
    }


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"module": "verl.no.such_module"}, "missing", "no module `verl.no.such_module`"),
        ({"module": "no_such_package.x"}, "missing", "no module `no_such_package.x`"),
        ({"target": "Gone.log"}, "missing", "has no `Gone`"),
        ({"target": "gone"}, "missing", "does not define `gone`"),
        ({"target": "Tracking.gone"}, "unknown", "does not define `Tracking.gone`"),
        ({"needs": ("data", "gone")}, "missing", "no longer has the parameter gone"),
    ],
)
def test_what_changed_in_verl_is_said(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object], status: str, reason: str
) -> None:
    (hook,) = [hook for hook in all_hooks() if hook.name == "tracking.log"]
    changed: Hook = replace(hook, **change)  # type: ignore[arg-type]
    monkeypatch.setattr(coverage_module, "all_hooks", lambda: (changed,))
    (found,) = coverage(modules_import=False)
    assert (found.status, found.name) == (status, "tracking.log")
    assert reason in (found.reason or "")
