"""Emulated devices end to end: real verl and Ray, devices that take the cost model's time."""

from __future__ import annotations

import json
import statistics

import polars as pl
import pytest
import yaml
from conftest import EXAMPLES, cli

from rlinsight.analyzers.emulation import LATE
from rlinsight.runs.emulated.cost import Emulated
from rlinsight.runs.emulated.laws import replica_cost, response_length

#: The other modes take their turn with the long tests.
MODES = [
    "fully_async",
    pytest.param("separate_async", marks=pytest.mark.long),
    pytest.param("colocate_async", marks=pytest.mark.long),
    pytest.param("sync", marks=pytest.mark.long),
]
SHORT = {"steps": 3, "overrides": {"trainer.test_freq": 2, "data.val_max_samples": 8}}
#: Faster than the examples, which keep within what two cores can follow.
SCALE = {"fully_async": 0.1, "separate_async": 0.2, "colocate_async": 0.15, "sync": 0.15}
CHANGES = {"fully_async": {"async_training.use_trainer_do_validate": True}}
HYBRID = {"fully_async": 8, "separate_async": 8, "colocate_async": 8, "sync": 8}
STANDALONE = {"fully_async": 8, "separate_async": 8, "colocate_async": 0, "sync": 0}

#: What a machine that is busy otherwise makes of a sound recording.
BUSY = {"hook_overhead", "overlap"}


@pytest.fixture(scope="module", params=MODES)
def run(request, recorded):
    overrides = SHORT["overrides"] | CHANGES.get(request.param, {})
    section = costs(request.param).model_dump(exclude_unset=True)
    changes = {**SHORT, "overrides": overrides, "emulated": section}
    return recorded(f"emulated_{request.param}", **changes)


@pytest.fixture(scope="module")
def trace(run):
    assert run.exit_code == 0, run.output[-4000:]
    return run.open()


@pytest.fixture(scope="module")
def requests(trace) -> pl.DataFrame:
    return trace.requests.filter(pl.col("end_ns").is_not_null()).collect()


@pytest.fixture(scope="module")
def spans(trace) -> pl.DataFrame:
    return trace.spans.filter(pl.col("end_ns").is_not_null()).collect()


@pytest.fixture(scope="module")
def cost(trace) -> Emulated:
    return costs(trace.mode)


def costs(mode: str) -> Emulated:
    section = yaml.safe_load((EXAMPLES / f"emulated_{mode}.yaml").read_text())["emulated"]
    return Emulated.model_validate({**section, "time_scale": SCALE[mode]})


def seconds(frame: pl.DataFrame) -> pl.Series:
    return (frame["end_ns"] - frame["start_ns"]) / 1e9


def test_the_trace_is_valid(run):
    found = json.loads(cli("validate", run.folder, "--json").stdout)["findings"]
    assert {finding["kind"] for finding in found} <= BUSY, found


def test_all_devices_are_emulated_and_occupied(trace):
    topology = trace.topology
    assert {device.kind for device in topology.devices} == {"emulated"}
    pools = [device.pool for device in topology.devices]
    assert pools.count("trainer") == 32
    assert pools.count("rollout") == 4 * STANDALONE[trace.mode]
    assert len(topology.lane("trainer/rank0").devices) == 32
    hybrid, standalone = topology.replicas("hybrid"), topology.replicas("standalone")
    assert (len(hybrid), len(standalone)) == (HYBRID[trace.mode], STANDALONE[trace.mode])
    for replicas, pool in ((hybrid, "trainer"), (standalone, "rollout")):
        held = [device for lane in replicas for device in lane.devices]
        assert len(held) == len(set(held)) == 4 * len(replicas)
        assert all(device.startswith(pool) for device in held)


def test_responses_take_the_time_of_the_cost_model(requests, cost):
    law = replica_cost(cost.generation, devices=4, capacity=64)
    done = requests.filter(pl.col("finish") != "abort")
    took_s = (done["end_ns"] - done["submit_ns"]).to_numpy() / 1e9
    first_s = (done["first_token_ns"] - done["submit_ns"]).to_numpy() / 1e9
    prompts, tokens = done["prompt_tokens"].to_numpy(), done["response_tokens"].to_numpy()
    least = law.prefill_s + law.prefill_per_token_s * prompts
    assert (first_s >= least - 1e-6).all()
    assert (took_s >= least + (tokens - 1) * law.step(1) - 1e-3).all()
    assert (took_s[first_s < least + 1e-3] <= least[first_s < least + 1e-3]
            + tokens[first_s < least + 1e-3] * law.step(64) + 1e-3).all()  # fmt: skip


def test_an_interrupted_response_gets_its_whole_length(trace, requests, cost):
    if trace.mode != "fully_async":
        pytest.skip("the names of prompts are random")
    whole = requests.filter(~pl.col("validate")).group_by("sample_uid").agg(
        tokens=pl.col("response_tokens").sum(),
        attempts=pl.len(),
        finish=pl.col("finish").sort_by("end_ns").last(),
    ).filter(pl.col("finish") != "abort")  # fmt: skip
    assert whole["attempts"].max() >= 2
    for uid, tokens in whole.select("sample_uid", "tokens").iter_rows():
        prompt, index = uid.rsplit("/", 1)
        assert tokens == response_length(cost.lengths, cost.seed, prompt, index, 4096), uid


def test_weights_are_synchronized_as_on_real_engines(trace, spans):
    markers = trace.markers.collect()
    lanes = trace.topology.replicas("standalone") or trace.topology.replicas("hybrid")
    for lane in lanes:
        mine = markers.filter(pl.col("lane") == lane.id)
        versions = mine.filter(pl.col("kind") == "param_sync")["param_version"].to_list()
        assert versions == sorted(versions)
        assert max(versions) >= 2
        if lane.engine_kind == "standalone":
            syncs = spans.filter(
                (pl.col("lane") == lane.id) & (pl.col("activity") == "weight_sync")
            )
            assert seconds(syncs).max() < 2.0 + 1.0
            paused = spans.filter((pl.col("lane") == lane.id) & (pl.col("activity") == "paused"))
            assert len(paused) >= len(versions) - 1
            assert len(mine.filter(pl.col("kind") == "abort")) >= len(versions) - 1


def test_hybrid_replicas_sleep_and_wake_and_validate(trace, requests, spans):
    for lane in trace.topology.replicas("hybrid"):
        done = set(spans.filter(pl.col("lane") == lane.id)["activity"].unique())
        assert done >= {"sleep", "wake"}
    validation = requests.filter(pl.col("validate"))
    assert len(validation)
    assert "hybrid" in validation["engine_kind"].unique()


def update_seconds(update: dict, trace, cost: Emulated) -> float:
    """Return what an update takes by the cost model, from the sizes that its span tells."""
    attrs = {pair["key"]: float(pair["value"]) for pair in update["attrs"]}
    mini_batches = 1 if trace.mode in ("fully_async", "separate_async") else 4
    return (
        mini_batches * cost.training.fixed_s
        + attrs["micro_batches"] * cost.training.per_micro_batch_s
        + attrs["tokens"] * cost.training.device_s_per_token
    )


def test_updates_take_the_time_of_the_cost_model(run, trace, spans, cost):
    """By the device's clock always; what a busy host adds is recorded, and doubted if much."""
    rank = pl.col("lane") == "trainer/rank0"
    late = trace.counters.filter(rank & (pl.col("name") == LATE)).sort("ts_ns").collect()
    by_device, by_span = [], []
    for update in spans.filter(rank & (pl.col("activity") == "update_actor")).to_dicts():
        law_s = update_seconds(update, trace, cost)
        said = late.filter(pl.col("ts_ns").is_between(update["start_ns"], update["end_ns"]))
        woken_ns, late_s = said.select("ts_ns", "value").row(-1)
        by_device.append(((woken_ns - update["start_ns"]) / 1e9 - late_s) / law_s)
        by_span.append((update["end_ns"] - update["start_ns"]) / 1e9 / law_s)
    assert len(by_device) >= 3
    assert statistics.median(by_device) == pytest.approx(1.0, rel=0.1)
    if statistics.median(by_span) > 1.15:
        report = json.loads(cli("analyze", run.folder, "--json").stdout)
        assert "updates ended late" in " ".join(report["trust"]["emulation"]["doubts"])


def test_gauges_of_the_engine(trace):
    names = set(trace.counters.collect()["name"].unique())
    assert names >= {"running_requests", "waiting_requests", "kv_cache_usage", "preemptions"}


def test_the_run_says_what_it_emulated_and_how_well(run, trace, cost):
    notes = trace.manifest.notes
    assert Emulated.model_validate(notes["emulated"]) == cost
    assert notes["emulated_trust"]["responses_per_s"] > 0
    assert f"emulated devices at a time scale of {cost.time_scale:g}" in run.output
    report = json.loads(cli("analyze", run.folder, "--json").stdout)
    assert report["trust"]["emulation"]["time_scale"] == cost.time_scale
    assert report["run"]["device_kinds"] == ["emulated"]


def test_what_verl_logs_is_in_the_run_s_time(trace, spans):
    logged = trace.metrics.filter(pl.col("key") == "timing_s/update_actor").collect()["value"]
    recorded = spans.filter((pl.col("lane") == "trainer") & (pl.col("activity") == "update_actor"))
    assert logged.sum() == pytest.approx(seconds(recorded).sum(), rel=0.3)
