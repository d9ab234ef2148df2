"""Post-import hooks: the patch is there before anybody can bind the original."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlinsight.collectors.verl.imports import waiting, when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable package whose `user` binds a name of `defining` while it is imported."""
    name = f"some_framework_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "defining.py").write_text("def step():\n    return 'original'\n")
    (folder / "user.py").write_text(f"from {name}.defining import step\n")
    (folder / "broken.py").write_text("raise RuntimeError('not importable')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [m for m in sys.modules if m.startswith(name)]:
        del sys.modules[module]


def patch(module: ModuleType) -> None:
    module.step = lambda: "patched"  # type: ignore[attr-defined]


def test_awaiting_a_module_does_not_import_it(package: str) -> None:
    when_imported(f"{package}.defining", patch)
    assert f"{package}.defining" in waiting()
    assert package not in sys.modules


def test_a_name_imported_from_the_module_is_the_patched_one(package: str) -> None:
    when_imported(f"{package}.defining", patch)
    user = importlib.import_module(f"{package}.user")
    assert user.step() == "patched"
    assert f"{package}.defining" not in waiting()


def test_an_imported_module_is_patched_at_once(package: str) -> None:
    module = importlib.import_module(f"{package}.defining")
    when_imported(f"{package}.defining", patch)
    assert module.step() == "patched"


def test_every_callback_runs_once_in_order(package: str) -> None:
    ran: list[str] = []
    when_imported(f"{package}.defining", lambda _: ran.append("first"))
    when_imported(f"{package}.defining", lambda _: ran.append("second"))
    module = importlib.import_module(f"{package}.defining")
    importlib.reload(module)
    assert ran == ["first", "second"]


def test_the_module_keeps_its_own_loader(package: str) -> None:
    when_imported(f"{package}.defining", lambda _: None)
    module = importlib.import_module(f"{package}.defining")
    assert type(module.__loader__).__module__ == "_frozen_importlib_external"
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert "original" in inspect.getsource(module)


def test_a_module_that_fails_to_import_fails_as_before(package: str) -> None:
    ran: list[ModuleType] = []
    when_imported(f"{package}.broken", ran.append)
    with pytest.raises(RuntimeError, match="not importable"):
        importlib.import_module(f"{package}.broken")
    assert ran == []


def test_a_module_that_does_not_exist_is_not_found(package: str) -> None:
    when_imported(f"{package}.nowhere", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        importlib.import_module(f"{package}.nowhere")
