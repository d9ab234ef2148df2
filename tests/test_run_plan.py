"""From a configuration to a command, its overrides and its environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from rlinsight.errors import ConfigError
from rlinsight.runs.overrides import Overrides, Quoted, format_value
from rlinsight.runs.plan import Platform, managed, wrapped
from rlinsight.runs.profile import parse, with_options
from rlinsight.runs.settings import compose
from rlinsight.runs.verl_args import smoke_prompts

MODES = ("sync", "colocate_async", "separate_async", "fully_async")
LOGGER_PATH = "VERL_FILE_LOGGER_PATH"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"


def run_config(mode="sync", **changes):
    document = {"mode": mode, "model": "org/model", "data": {"train": "t.parquet", "val": "v"}}
    if mode in ("separate_async", "fully_async"):
        document["resources"] = {
            "trainer": {"nodes": 2, "devices_per_node": 4},
            "rollout": {"nodes": 1, "devices_per_node": 6},
        }
    return parse(document | changes)


def plan_of(config, **options):
    return managed(config, run_id="run-1", trace=Path("/traces/run-1"), **options)


def seen_by_verl(config, **options):
    plan = plan_of(config, **options)
    return compose(plan.module, plan.overrides)


@pytest.mark.parametrize("mode", MODES)
def test_verl_accepts_the_overrides_of_every_mode(mode):
    settings = seen_by_verl(run_config(mode))
    assert settings.get("actor_rollout_ref.model.path") == "org/model"
    assert settings.get("data.train_files") == "t.parquet"
    assert settings.get("trainer.logger") == ["console", "file"]


@pytest.mark.parametrize(
    ("mode", "module", "trainer_mode"),
    [
        ("sync", "verl.trainer.main_ppo", "sync"),
        ("colocate_async", "verl.trainer.main_ppo", "colocate_async"),
        ("separate_async", "verl.trainer.main_ppo", "separate_async"),
    ],
)
def test_a_v1_mode_is_chosen_by_an_override(mode, module, trainer_mode):
    plan = plan_of(run_config(mode))
    assert plan.command[2:4] == ("-m", module)
    assert compose(module, plan.overrides).get("trainer.v1.trainer_mode") == trainer_mode


def test_fully_async_has_an_entry_of_its_own_and_its_own_rollout_section():
    config = run_config("fully_async", steps=5, overrides={MINI: 16})
    assert plan_of(config).module.endswith("fully_async_main")
    settings = seen_by_verl(config)
    assert (settings.get("rollout.nnodes"), settings.get("rollout.n_gpus_per_node")) == (1, 6)
    assert (settings.get("trainer.nnodes"), settings.get("trainer.n_gpus_per_node")) == (2, 4)
    assert settings.get("data.train_batch_size") == 0
    # 5 versions x 16 prompts x 1 batch x 4 local steps
    assert settings.get("rollout.total_rollout_steps") == 320


def test_separate_async_uses_the_section_of_the_rollout():
    settings = seen_by_verl(run_config("separate_async", steps=7))
    rollout = settings.get("actor_rollout_ref.rollout")
    assert (rollout["nnodes"], rollout["n_gpus_per_node"]) == (1, 6)
    assert rollout["checkpoint_engine"]["backend"] == "nccl"
    assert settings.get("trainer.total_training_steps") == 7


def test_an_override_of_the_user_wins_over_ours_and_the_platforms():
    config = run_config(overrides={"trainer.logger": ["console"], "a.b": 2})
    settings = seen_by_verl(config, platform=Platform(overrides=["+a.b=1", "trainer.device=cpu"]))
    assert settings.get("trainer.logger") == ["console"]
    assert settings.get("a.b") == 2
    assert settings.get("trainer.device") == "cpu"


@pytest.mark.parametrize("mode", MODES)
def test_a_smoke_run_is_eight_prompts_by_four_responses_in_at_most_three_steps(mode):
    big = {
        MINI: 256,
        "actor_rollout_ref.rollout.n": 16,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 24,
    }
    config = with_options(run_config(mode, overrides=big, steps=500), {"smoke": True})
    settings = seen_by_verl(config)
    assert settings.get("actor_rollout_ref.rollout.n") == 4
    if mode == "fully_async":
        per_version = settings.get(MINI) * settings.get(
            "async_training.trigger_parameter_sync_step"
        )
        assert per_version == 8
        assert settings.get("rollout.total_rollout_steps") == 24
    else:
        assert settings.get("data.train_batch_size") == 8
        assert settings.get("trainer.total_training_steps") == 3
    if mode == "separate_async":
        every = settings.get("trainer.v1.separate_async.parameter_sync_step")
        assert every * settings.get(MINI) == 8


def test_a_smoke_run_keeps_fewer_steps_and_divides_the_micro_batch():
    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    config = with_options(run_config(steps=2, overrides={micro: 24}), {"smoke": True})
    settings = seen_by_verl(config)
    assert settings.get("trainer.total_training_steps") == 2
    assert settings.get(micro) == 8  # of the 16 sequences of a mini-batch on one device


@pytest.mark.parametrize(("devices", "prompts"), [(1, 8), (8, 8), (16, 8), (24, 24), (64, 32)])
def test_a_smoke_batch_grows_only_where_ranks_would_go_empty(devices, prompts):
    assert smoke_prompts(devices) == prompts
    assert prompts // 2 * 4 % devices == 0


def test_the_environment_turns_recording_on_everywhere():
    config = run_config(
        environment={"NCCL_DEBUG": "INFO", "RLINSIGHT_TRACE": "elsewhere"},
        collectors={"sample_interval_s": 0.5, "disable": ["tracking.log"]},
    )
    plan = plan_of(config, platform=Platform({"SECRET": "s", "NCCL_DEBUG": "WARN"}))
    assert plan.environment["RLINSIGHT_TRACE"] == "/traces/run-1"
    assert plan.environment["RLINSIGHT_RUN_ID"] == "run-1"
    assert json.loads(plan.environment["RLINSIGHT_COLLECTORS"]) == {
        "sample_interval_s": 0.5,
        "disable": ["tracking.log"],
    }
    assert plan.environment["NCCL_DEBUG"] == "INFO"
    assert plan.environment[LOGGER_PATH] == "/traces/run-1/verl-metrics.jsonl"
    in_ray = compose(plan.module, plan.overrides).get("ray_kwargs.ray_init.runtime_env.env_vars")
    assert in_ray == {name: plan.environment[name] for name in (*plan.protocol, LOGGER_PATH)}
    assert "SECRET" not in plan.shell_line()


def test_a_submitted_job_carries_its_environment_itself():
    plan = plan_of(run_config(ray_address="http://head:8265"))
    assert not any("env_vars" in override for override in plan.overrides)
    assert plan.command[0] == "python"


def test_a_wrapped_command_is_not_changed():
    config = run_config(environment={"A": "1"})
    plan = wrapped(config, ["bash", "train.sh", "--x"], run_id="r", trace=Path("/t"))
    assert plan.command == ("bash", "train.sh", "--x")
    assert set(plan.environment) == {
        "A", "RLINSIGHT_TRACE", "RLINSIGHT_RUN_ID", "RLINSIGHT_COLLECTORS",
    }  # fmt: skip


def test_unknown_override_keys_are_named_together_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        compose("verl.trainer.main_ppo", ["algorithm.adv_estimatr=grpo", "zzz=1", "+new.key=1"])
    text = str(caught.value)
    assert "algorithm.adv_estimatr: verl has no such key; did you mean `algorithm.adv_es" in text
    assert "zzz: verl has no such key; write `+zzz` to add it" in text
    assert "new.key" not in text


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 1e-3, "plain/path-1.0", "with space", "it's", "a,b=c", "back\\slash'",
        "{not a mapping", ["a b", 1, None], {"k": ["x", {"y": "z w"}]}, "", "ümlaut", "a:b c",
    ],
)  # fmt: skip
def test_values_survive_hydras_grammar(value):
    quoted = Quoted(value) if isinstance(value, str) else value
    parsed = OverridesParser.create().parse_override(f"+probe={format_value(quoted)}")
    plain = OmegaConf.to_container(OmegaConf.create({"probe": parsed.value()}))
    assert plain == {"probe": value}


def test_text_that_is_hydra_syntax_passes_through():
    assert format_value("[a,b]") == "[a,b]"
    assert format_value("${trainer.nnodes}") == "${trainer.nnodes}"
    assert format_value("1e-3") == "1e-3"
    assert format_value(Quoted("1e-3")) == "'1e-3'"


def test_a_later_override_replaces_an_earlier_one_and_keeps_its_plus():
    overrides = Overrides({"+a": 1, "b": 1, "~c": None})
    overrides.update({"a": 2, "++b": 3})
    assert overrides.arguments() == ["+a=2", "++b=3", "~c"]
