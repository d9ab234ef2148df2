"""Each preflight check: what it refuses, in which words, and what it lets pass."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlinsight.errors import PreflightError
from rlinsight.runs import kernel_window, preflight
from rlinsight.runs.checks import batches, cluster, estimate, machine, sequences, software, training
from rlinsight.runs.checks.facts import Facts
from rlinsight.runs.plan import managed, wrapped
from rlinsight.runs.profile import parse
from rlinsight.runs.settings import Settings

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def facts(mode="sync", *, settings=None, trainer=(1, 8), rollout=None, environment=None, **more):
    """A run of `mode` whose verl would see `settings` (dotted keys)."""
    if rollout is None and mode in ("separate_async", "fully_async"):
        rollout = (1, 8)
    resources = {"trainer": pool(trainer), **more.pop("resources", {})}
    if rollout is not None:
        resources["rollout"] = pool(rollout)
    trace = more.pop("trace", Path("/tmp/not-there/trace"))
    document = {"mode": mode, "model": "example", "data": "example", "resources": resources, **more}
    return Facts(
        config=parse(document),
        trace=trace,
        settings=Settings(nested(settings or {})),
        environment=environment or {},
    )


def pool(shape):
    return {"nodes": shape[0], "devices_per_node": shape[1]}


def nested(dotted):
    result = {}
    for key, value in dotted.items():
        *parents, last = key.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return result


# -- nodes ---------------------------------------------------------------------------------


def test_nodes_of_the_job_are_the_sum_of_both_pools():
    good = facts("fully_async", trainer=(2, 8), rollout=(3, 8), resources={"nodes": 5})
    assert batches.nodes_add_up(good) is None
    bad = facts("fully_async", trainer=(2, 8), rollout=(3, 8), resources={"nodes": 4})
    assert "2 trainer + 3 rollout nodes = 5, found 4" in batches.nodes_add_up(bad).message


@pytest.mark.parametrize(
    ("mode", "section"), [("fully_async", "rollout"), ("separate_async", ROLLOUT)]
)
def test_an_override_may_not_contradict_the_resources(mode, section):
    seen = {"trainer.nnodes": 1, f"{section}.nnodes": 4}
    problem = batches.nodes_add_up(facts(mode, settings=seen))
    assert "the overrides give verl 5 nodes" in problem.message
    assert batches.nodes_add_up(facts(mode, settings=seen | {f"{section}.nnodes": 1})) is None


# -- batches -------------------------------------------------------------------------------


def test_a_train_batch_of_separate_async_is_a_whole_sync_cycle():
    def seen(batch):
        return {
            "data.train_batch_size": batch,
            f"{ACTOR}.ppo_mini_batch_size": 16,
            "trainer.v1.separate_async.parameter_sync_step": 4,
        }

    assert batches.train_batch_is_whole_cycle(facts("separate_async", settings=seen(64))) is None
    problem = batches.train_batch_is_whole_cycle(facts("separate_async", settings=seen(60)))
    assert "4 x 16 = 64, found 60" in problem.message
    assert batches.train_batch_is_whole_cycle(facts("sync", settings=seen(60))) is None


def test_a_train_batch_holds_a_mini_batch_except_in_fully_async():
    seen = {"data.train_batch_size": 0, f"{ACTOR}.ppo_mini_batch_size": 16}
    assert "smaller than" in batches.train_batch_holds_mini_batch(facts(settings=seen)).message
    assert batches.train_batch_holds_mini_batch(facts("fully_async", settings=seen)) is None


@pytest.mark.parametrize(
    ("mini", "responses", "extra", "fits"),
    [
        (6, 4, {}, True),  # 24 sequences on 8 ranks
        (5, 4, {}, False),  # 20 on 8
        (5, 4, {f"{ACTOR}.ulysses_sequence_parallel_size": 2}, True),  # 20 on 4
        (5, 2, {f"{ACTOR}.strategy": "megatron",
                f"{ACTOR}.megatron.tensor_model_parallel_size": 4}, True),  # 10 on 2
        (5, 1, {f"{ACTOR}.strategy": "megatron",
                f"{ACTOR}.megatron.tensor_model_parallel_size": 4}, False),  # 5 on 2
    ],
)  # fmt: skip
def test_a_mini_batch_divides_by_the_data_parallel_ranks(mini, responses, extra, fits):
    seen = {f"{ACTOR}.ppo_mini_batch_size": mini, f"{ROLLOUT}.n": responses, **extra}
    problem = batches.mini_batch_divides_by_ranks(facts(settings=seen))
    assert (problem is None) is fits


@pytest.mark.parametrize(
    ("mini", "micro", "dynamic", "fits"),
    [
        (16, 4, False, True),  # 64 sequences on 8 ranks: 8 each
        (16, 8, False, True),
        (16, 16, False, False),  # a micro-batch is more than a rank has
        (24, 8, False, False),  # 12 each
        (24, 8, True, True),  # tokens decide, not their number
    ],
)
def test_a_ranks_part_of_a_mini_batch_is_whole_micro_batches(mini, micro, dynamic, fits):
    seen = {
        f"{ACTOR}.ppo_mini_batch_size": mini,
        f"{ROLLOUT}.n": 4,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": micro,
        f"{ACTOR}.use_dynamic_bsz": dynamic,
    }
    problem = batches.mini_batch_divides_by_micro_batches(facts(settings=seen))
    assert (problem is None) is fits
    assert fits or f"ppo_micro_batch_size_per_gpu={4 if mini == 24 else 8}" in problem.message


def test_trainer_devices_form_whole_sequence_parallel_groups():
    seen = {f"{ACTOR}.ulysses_sequence_parallel_size": 3}
    assert batches.sequence_parallel_divides_devices(facts(settings=seen)) is not None
    assert batches.sequence_parallel_divides_devices(facts(settings=seen, trainer=(1, 6))) is None


@pytest.mark.parametrize(
    ("mode", "rollout", "fits"),
    [("sync", None, True), ("fully_async", (1, 8), True), ("fully_async", (1, 6), False)],
)
def test_rollout_devices_form_whole_replicas(mode, rollout, fits):
    seen = {f"{ROLLOUT}.tensor_model_parallel_size": 4, f"{ROLLOUT}.data_parallel_size": 1}
    problem = batches.replicas_fill_the_pool(facts(mode, settings=seen, rollout=rollout))
    assert (problem is None) is fits


def test_an_uneven_share_per_replica_is_a_warning():
    seen = {
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.n": 1,
        "data.train_batch_size": 12,
    }
    problem = batches.batch_divides_by_replicas(facts(settings=seen))
    assert problem.severity == "warning"
    assert "12 sequences do not divide by 8 replicas" in problem.message
    even = seen | {f"{ROLLOUT}.n": 2}
    assert batches.batch_divides_by_replicas(facts(settings=even)) is None


# -- sequences -----------------------------------------------------------------------------


def budget(tokens, share=1):
    return {
        "data.max_prompt_length": 1024,
        "data.max_response_length": 3072,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{ACTOR}.ulysses_sequence_parallel_size": share,
    }


def test_the_token_budget_holds_the_longest_sequence():
    check = sequences.token_budget_holds_a_sequence
    assert check(facts(settings=budget(4096))) is None
    assert "(4096 tokens" in check(facts(settings=budget(4095))).message
    assert check(facts(settings=budget(2048, share=2))) is None
    assert "size 2 = 2048, found" in check(facts(settings=budget(2047, share=2))).message
    fixed = budget(1) | {f"{ACTOR}.use_dynamic_bsz": False}
    assert check(facts(settings=fixed)) is None


def test_an_engine_limit_below_the_longest_sequence_is_a_warning():
    seen = budget(4096) | {f"{ROLLOUT}.max_model_len": 4000}
    assert sequences.engine_takes_a_sequence(facts(settings=seen)).severity == "warning"
    seen[f"{ROLLOUT}.max_model_len"] = 4096
    assert sequences.engine_takes_a_sequence(facts(settings=seen)) is None


@pytest.mark.parametrize("nested", [False, True])
def test_an_engine_longer_than_the_models_positions_is_refused_before_the_start(tmp_path, nested):
    positions = {"max_position_embeddings": 1024}
    config = {"text_config": positions} if nested else positions
    (tmp_path / "config.json").write_text(json.dumps(config))
    check = sequences.model_takes_a_sequence
    seen = {f"{ROLLOUT}.max_model_len": 1025}
    assert "1024 positions" in check(facts(settings=seen, model=str(tmp_path))).message
    seen[f"{ROLLOUT}.max_model_len"] = 1024
    assert check(facts(settings=seen, model=str(tmp_path))) is None
    assert check(facts(settings=seen, model=str(tmp_path / "elsewhere"))) is None


@pytest.mark.parametrize(
    ("config", "is_linear"),
    [
        ({"model_type": "qwen2"}, False),
        ({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}}, True),
        ({"model_type": "qwen3_next"}, True),
        ({"model_type": "x", "layer_types": ["full_attention", "linear_attention"]}, True),
        ({"model_type": "x", "text_config": {"layer_types": ["linear_attention"]}}, True),
        ({"model_type": "x", "layer_types": ["full_attention"]}, False),
    ],
)
def test_linear_attention_is_not_split_over_devices(tmp_path, config, is_linear):
    (tmp_path / "config.json").write_text(json.dumps(config))
    seen = {f"{ACTOR}.ulysses_sequence_parallel_size": 2}
    problem = sequences.linear_attention_is_not_split(facts(settings=seen, model=str(tmp_path)))
    assert (problem is not None) is is_linear
    alone = facts(settings={f"{ACTOR}.ulysses_sequence_parallel_size": 1}, model=str(tmp_path))
    assert sequences.linear_attention_is_not_split(alone) is None


# -- machine -------------------------------------------------------------------------------


def test_missing_files_are_named_together(tmp_path):
    there = tmp_path / "a.parquet"
    there.touch()
    data = {"train": [str(there), "no.parquet"], "val": "s3://b/v"}
    problem = machine.files_exist(facts(model="./no-model", data=data))
    assert "model `./no-model`, data `no.parquet` not found" in problem.message
    data = {"train": str(there), "val": "hdfs://x"}
    assert machine.files_exist(facts(model="Qwen/Qwen3-0.6B", data=data)) is None


def test_devices_that_are_not_there_are_missed():
    problem = machine.devices_exist(facts(trainer=(1, 64), device="npu"))
    assert "64 npu devices are asked for, found 0" in problem.message
    assert machine.devices_exist(facts(trainer=(1, 64), device="cpu")) is None
    with_cluster = facts(trainer=(8, 8), environment={"RAY_ADDRESS": "10.0.0.1:6379"})
    assert machine.devices_exist(with_cluster) is None


def test_emulated_devices_are_always_there():
    assert machine.devices_exist(facts(trainer=(8, 8), device="emulated")) is None


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        problem = machine.ports_are_free(facts(environment={"MASTER_PORT": str(port)}))
        assert f"MASTER_PORT={port}" in problem.message
    assert machine.ports_are_free(facts(environment={"MASTER_PORT": str(port)})) is None


def test_the_trace_must_fit_the_disk(tmp_path):
    small = facts(steps=10, trace=tmp_path / "t")
    assert machine.disk_holds_the_trace(small) is None
    huge = facts(steps=10**9, trace=tmp_path / "t")
    assert "MiB free" in machine.disk_holds_the_trace(huge).message


def test_a_longer_or_wider_run_is_estimated_larger():
    sizes = [
        estimate.trace_bytes(facts(steps=100)),
        estimate.trace_bytes(facts(steps=1000)),
        estimate.trace_bytes(facts(steps=1000, trainer=(8, 8))),
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_a_used_trace_folder_is_refused(tmp_path):
    assert machine.trace_folder_is_new(facts(trace=tmp_path)) is None
    (tmp_path / "manifest.json").touch()
    assert "not empty" in machine.trace_folder_is_new(facts(trace=tmp_path)).message
    file = tmp_path / "manifest.json"
    assert "is a file" in machine.trace_folder_is_new(facts(trace=file)).message


def test_a_url_nobody_can_write_is_refused(tmp_path):
    base = facts()
    assert machine.trace_url_is_writable(base) is None
    good = Facts(config=base.config, trace=base.trace, url=f"file://{tmp_path}/a/b")
    assert machine.trace_url_is_writable(good) is None
    bad = Facts(config=base.config, trace=base.trace, url="nosuch://bucket/x")
    assert "nosuch" in machine.trace_url_is_writable(bad).message


def test_a_command_that_is_not_there_is_named():
    found = Facts(
        config=facts().config, trace=Path("/t"), command=("no-such-program",), wrapped=True
    )
    assert "`no-such-program` is not an executable" in machine.command_exists(found).message


# -- software ------------------------------------------------------------------------------


def test_the_entry_point_is_registered_here():
    assert software.plugin_is_registered(facts()) is None


def test_a_plugin_policy_that_leaves_us_out_is_refused():
    policy = {"VERL_USE_EXTERNAL_PLUGINS": "other"}
    assert "other keeps verl" in software.plugin_is_registered(facts(environment=policy)).message
    both = {"VERL_USE_EXTERNAL_PLUGINS": "other, rlinsight"}
    assert software.plugin_is_registered(facts(environment=both)) is None


def test_packages_that_are_missing_are_named():
    assert software.packages_are_installed(facts()) is None
    seen = {f"{ROLLOUT}.name": "no_such_engine"}
    assert "no_such_engine" in software.packages_are_installed(facts(settings=seen)).message


def test_an_unknown_version_is_a_warning(monkeypatch):
    assert software.versions_are_known(facts()) is None
    monkeypatch.setitem(software.KNOWN_VERSIONS, "verl", ("0.7.",))
    problem = software.versions_are_known(facts())
    assert problem.severity == "warning"
    assert "verl 0.9.1 (known: 0.7.)" in problem.message


def test_a_hook_turned_off_by_a_misspelt_name_is_refused():
    good = facts(collectors={"disable": ["tracking.log"]})
    assert software.disabled_hooks_exist(good) is None
    bad = facts(collectors={"disable": ["traking.log"]})
    assert "did you mean `tracking.log`" in software.disabled_hooks_exist(bad).message


# -- Ray -----------------------------------------------------------------------------------


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_running_cluster_is_found_by_the_note_of_ray_start(tmp_path, listening):
    environment = {"RAY_TMPDIR": str(tmp_path)}
    assert cluster.running_cluster(environment) is None
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(listening)
    assert cluster.running_cluster(environment) == listening
    assert cluster.running_cluster(environment | {"RAY_ADDRESS": "local"}) is None
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    assert cluster.running_cluster(environment) is None


def test_a_wrapped_command_is_warned_of_a_running_cluster():
    there = {"RAY_ADDRESS": "10.0.0.1:6379"}
    found = Facts(config=facts().config, trace=Path("/t"), environment=there, wrapped=True)
    problem = cluster.cluster_has_our_environment(found)
    assert problem.severity == "warning"
    assert "without RLINSIGHT_TRACE" in problem.message


def test_a_managed_run_hands_its_variables_over_but_not_its_environment():
    there = {"RAY_ADDRESS": "10.0.0.1:6379"}
    assert cluster.cluster_has_our_environment(facts(environment=there)) is None
    cpu = cluster.cluster_has_our_environment(facts(environment=there, device="cpu"))
    assert "`ray_address: http://<head>:8265`" in cpu.message
    config = facts(environment=there, resources={})
    own = Facts(
        config=config.config.model_copy(update={"environment": {"A": "1"}}),
        trace=Path("/t"),
        environment=there,
    )
    assert "the keys of `environment`" in cluster.cluster_has_our_environment(own).message


def test_a_raylet_that_has_our_variable_is_no_problem(tmp_path):
    raylet = tmp_path / "raylet"
    raylet.symlink_to(sys.executable)
    environment = {**os.environ, "RLINSIGHT_TRACE": str(tmp_path)}
    child = subprocess.Popen(
        [str(raylet), "-c", "print('up', flush=True); import time; time.sleep(60)"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "up\n"
        seen = {"RAY_ADDRESS": "10.0.0.1:6379", "RLINSIGHT_TRACE": str(tmp_path)}
        found = Facts(config=facts().config, trace=tmp_path, environment=seen, wrapped=True)
        assert cluster.cluster_has_our_environment(found) is None
    finally:
        child.kill()
        child.communicate()


def test_a_job_server_that_does_not_answer_is_named(listening):
    assert cluster.job_server_answers(facts(ray_address=f"http://{listening}")) is None
    assert (
        "no Ray job server"
        in cluster.job_server_answers(facts(ray_address="http://127.0.0.1:1")).message
    )


# -- all together --------------------------------------------------------------------------


def test_all_problems_come_at_once(tmp_path):
    config = parse(
        {
            "mode": "separate_async",
            "model": "/nope",
            "data": {"train": "/nope/t", "val": "/nope/v"},
            "resources": {"nodes": 9, "rollout": {}},
            "overrides": {"data.train_batch_size": 30, f"{ACTOR}.ppo_mini_batch_size": 8},
        }
    )
    plan = managed(config, run_id="r", trace=tmp_path / "t")
    with pytest.raises(PreflightError) as caught:
        preflight.require(preflight.findings(preflight.facts_of(config, plan)))
    text = str(caught.value)
    assert "the run was not started, " in text
    for check in ("nodes", "sync cycle", "files", "devices"):
        assert f"\n  {check}: " in text


def test_a_misspelt_override_is_a_finding_not_a_traceback(tmp_path):
    config = parse(
        {"mode": "sync", "model": "a/b", "data": "example", "overrides": {"data.train_batch": 1}}
    )
    plan = managed(config, run_id="r", trace=tmp_path / "t")
    found = preflight.findings(preflight.facts_of(config, plan))
    message = next(f.message for f in found if f.check == "overrides")
    assert "overrides.data.train_batch: verl has no such key" in message


def test_a_wrapped_command_is_not_held_to_the_rules_of_a_managed_run(tmp_path):
    config = facts(trainer=(1, 64), model="/nope").config
    plan = wrapped(config, [sys.executable], run_id="r", trace=tmp_path / "t")
    assert preflight.findings(preflight.facts_of(config, plan)) == []


def test_without_verl_the_check_says_so_and_the_rest_still_runs(tmp_path):
    program = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        sys.modules["verl"] = None
        from rlinsight.runs import preflight, settings
        from rlinsight.runs.plan import managed
        from rlinsight.runs.profile import parse
        settings.importlib.util.find_spec = lambda name: None
        config = parse({{"mode": "sync", "model": "/nope", "data": "example"}})
        plan = managed(config, run_id="r", trace=Path({str(tmp_path / "t")!r}))
        for f in preflight.findings(preflight.facts_of(config, plan)):
            print(f.check, f.message)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "packages not installed: verl, ray, vllm" in done.stdout
    assert "files model `/nope`" in done.stdout


# -- training ------------------------------------------------------------------------------

FUSED = "actor_rollout_ref.model.use_fused_kernels"


@pytest.fixture
def flash_attn(monkeypatch):
    """Say whether flash-attn is installed."""

    def say(is_installed):
        monkeypatch.setattr(training, "fused_log_probs", lambda: is_installed)

    return say


def test_a_loop_over_tokens_is_warned_of(flash_attn):
    flash_attn(False)
    problem = training.log_probs_are_vectorized(facts(device="cuda"))
    assert "Python loop over tokens" in problem.message
    assert problem.severity == "warning"
    assert training.log_probs_are_vectorized(facts(device="cuda", settings={FUSED: True})) is None
    assert training.log_probs_are_vectorized(facts(device="cpu")) is None
    flash_attn(True)
    assert training.log_probs_are_vectorized(facts(device="cuda")) is None


@pytest.mark.parametrize(
    ("tied", "strategy", "is_refused"),
    [(False, "fsdp2", True), (True, "fsdp2", False), (False, "fsdp", False)],
)
def test_fused_kernels_that_would_meet_a_sharded_head(tmp_path, tied, strategy, is_refused):
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    settings = {FUSED: True, f"{ACTOR}.strategy": strategy}
    found = training.fused_kernels_find_their_weights(facts(settings=settings, model=str(tmp_path)))
    assert (found is not None) is is_refused
    if is_refused:
        assert "mixed torch.Tensor and DTensor" in found.message


def test_of_an_unknown_model_nothing_is_said():
    settings = {FUSED: True, f"{ACTOR}.strategy": "fsdp2"}
    found = training.fused_kernels_find_their_weights(facts(settings=settings, model="org/model"))
    assert found is None


def test_a_profile_that_nobody_could_open_is_warned_of(monkeypatch):
    monkeypatch.setattr(kernel_window, "fused_log_probs", lambda: False)
    window = {"kernel": {"steps": list(range(1, 11))}}
    sizes = {
        "data.train_batch_size": 512, f"{ROLLOUT}.n": 8, "data.max_response_length": 4096,
    }  # fmt: skip
    found = machine.kernel_window_is_small(facts(settings=sizes, profile=window))
    assert "MiB (compressed); choose fewer" in found.message
    assert machine.kernel_window_is_small(facts(settings=sizes)) is None
