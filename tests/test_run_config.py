"""The run's YAML: what it accepts, and how it says what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from rlinsight.errors import ConfigError
from rlinsight.runs import config as models
from rlinsight.runs.config import RunConfig, json_schema
from rlinsight.runs.emulated import cost
from rlinsight.runs.profile import load, load_recording, parse, with_options

SYNC = {"mode": "sync", "model": "example", "data": "example"}


def yaml_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_a_small_file_is_enough(tmp_path):
    config = load(yaml_file(tmp_path, "mode: sync\nmodel: example\ndata: example\n"))
    assert config.resources.total_devices == 1
    assert config.trace == "runs/{name}-{time}"
    assert config.smoke is False


def test_all_errors_come_at_once_with_their_path(tmp_path):
    path = yaml_file(
        tmp_path,
        """
        mode: fully-async
        devize: cuda
        model: m
        data: {train: a, vall: b}
        resources:
          trainer: {node: 1, devices_per_node: 0}
        steps: 0
        trace: runs/{nme}
        """,
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    text = str(caught.value)
    assert "8 problems" in text
    for line in (
        "mode: must be 'sync', 'colocate_async', 'separate_async' or 'fully_async', "
        "found 'fully-async'; did you mean `fully_async`?",
        "devize: unknown key; did you mean `device`?",
        "data.val: is required and missing",
        "data.vall: unknown key; did you mean `val`?",
        "resources.trainer.node: unknown key; did you mean `nodes`?",
        "resources.trainer.devices_per_node: input should be greater than or equal to 1, found 0",
        "steps: input should be greater than or equal to 1, found 0",
        "trace: unknown placeholder `{nme}`",
    ):
        assert line in text


@pytest.mark.parametrize("mode", ["separate_async", "fully_async"])
def test_rollout_devices_are_needed_where_rollouts_have_their_own(mode):
    with pytest.raises(ConfigError, match=r"resources\.rollout: is required and missing"):
        parse({**SYNC, "mode": mode})
    pools = {"trainer": {"devices_per_node": 4}, "rollout": {"nodes": 2, "devices_per_node": 8}}
    resources = parse({**SYNC, "mode": mode, "resources": pools}).resources
    assert (resources.total_nodes, resources.total_devices) == (3, 20)


def test_rollout_devices_are_refused_where_rollouts_have_none():
    with pytest.raises(ConfigError, match=r"resources\.rollout: must be left out: sync"):
        parse({**SYNC, "resources": {"rollout": {}}})


def test_environment_values_are_text_as_in_a_shell():
    config = parse({**SYNC, "environment": {"A": 1, "B": True, "C": False, "D": "x", "E": 0.5}})
    assert config.environment == {"A": "1", "B": "1", "C": "0", "D": "x", "E": "0.5"}


def test_a_key_given_twice_is_refused(tmp_path):
    path = yaml_file(tmp_path, "mode: sync\nmodel: a\nmodel: b\ndata: example\n")
    with pytest.raises(ConfigError, match="`model` is given twice"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found nothing"),
        ("- a\n", "found a list"),
        ("mode: [\n", "is not YAML"),
        ("? [a, b]\n: 1\n", "a key must be a name"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(yaml_file(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not YAML: it is not text in UTF-8"):
        load(path)


@pytest.mark.parametrize("trace", ["runs/{name", "runs/name}", "runs/{name:{time}}"])
def test_a_brace_that_is_not_closed_is_refused(trace):
    with pytest.raises(ConfigError, match="trace: "):
        with_options(None, {"trace": trace})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nope\.yaml` cannot be read: no such file"):
        load(tmp_path / "nope.yaml")


def test_a_profile_for_a_wrapped_command_needs_no_model(tmp_path):
    path = yaml_file(tmp_path, "name: mine\ncollectors: {sample_interval_s: 5}\n")
    config = load_recording(path)
    assert config.collectors.sample_interval_s == 5
    assert not isinstance(config, RunConfig)


def test_a_full_profile_serves_a_wrapped_command_and_is_checked_in_full(tmp_path):
    assert isinstance(
        load_recording(yaml_file(tmp_path, "mode: sync\nmodel: m\ndata: example\n")), RunConfig
    )
    with pytest.raises(ConfigError, match="data: is required"):
        load_recording(yaml_file(tmp_path, "mode: sync\nmodel: m\n"))


def test_command_line_options_replace_fields():
    config = with_options(parse(SYNC), {"smoke": True, "trace": "memory://x"})
    assert isinstance(config, RunConfig)
    assert config.smoke
    assert config.trace == "memory://x"
    with pytest.raises(ConfigError, match="stall_timeout_s"):
        with_options(parse(SYNC), {"stall_timeout_s": -1})


@pytest.mark.parametrize(
    ("seconds", "fits"), [(0.05, True), (60, True), (0.04, False), (61, False)]
)
def test_devices_are_sampled_as_often_as_the_sampler_can(seconds, fits):
    document = {**SYNC, "collectors": {"sample_interval_s": seconds}}
    if fits:
        assert parse(document).collectors.sample_interval_s == seconds
        return
    with pytest.raises(ConfigError, match=r"collectors\.sample_interval_s: input should be"):
        parse(document)


def test_the_schema_is_complete_and_refuses_unknown_keys():
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == set(RunConfig.model_fields)
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"mode", "model", "data"}


def test_every_field_is_explained_in_the_docs():
    page = (Path(__file__).parent.parent / "docs" / "run.md").read_text()
    text = page.split("\n## The YAML\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE))
    assert documented == set(field_paths(RunConfig))


def test_the_cost_model_is_explained_in_the_docs():
    text = (Path(__file__).parent.parent / "docs" / "emulated.md").read_text()
    model = text.split("\n## Scenarios\n")[0]
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", model, re.MULTILINE))
    assert documented == set(cost_paths(cost.Emulated))


def cost_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    paths = []
    for name, field in model.model_fields.items():
        inner = getattr(cost, str(getattr(field.annotation, "__name__", "")), None)
        paths += cost_paths(inner, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return paths


def field_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    paths = []
    for name, field in model.model_fields.items():
        assert field.description, f"{prefix}{name} has no description"
        paths.append(f"{prefix}{name}")
        for section in (
            models.Data, models.Pool, models.Resources, models.Collectors, models.Profile,
            models.KernelWindow,
        ):  # fmt: skip
            if section.__name__ in str(field.annotation):
                paths += field_paths(section, f"{prefix}{name}.")
    return paths


EXAMPLES = sorted((Path(__file__).parent.parent / "examples" / "gpu").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_gpu_example_is_a_valid_run(path):
    config = load(path)
    assert isinstance(config, RunConfig)
    assert config.device == "cuda"
    assert config.name == f"gpu-{path.stem.replace('_', '-')}"


def test_the_gpu_examples_are_there():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize(
    ("given", "meant"),
    [("gpu", "cuda"), ("GPU", "cuda"), ("ascend", "npu"), ("emulatd", "emulated")],
)
def test_a_device_by_another_name_is_understood(given, meant):
    with pytest.raises(ConfigError, match=f"found '{given}'; did you mean `{meant}`"):
        parse({**SYNC, "device": given})
