"""Kernel windows: from the YAML to verl's profiler, its bounds, and its file into the trace."""

from __future__ import annotations

import gzip
import json
import time
import types
from pathlib import Path

import pytest

import rlinsight
from rlinsight.collectors.importers.intervals import clipped, length, overlap, shares, union
from rlinsight.collectors.importers.torch_profiler import import_folder, read_window
from rlinsight.collectors.verl import kernel
from rlinsight.errors import ConfigError, TraceError
from rlinsight.runs import kernel_window, plan
from rlinsight.runs.kernel_window import estimated_bytes, limits, overrides
from rlinsight.runs.profile import parse

US = 1000
BASE_NS = 1_700_000_000_000_000_000


def config(**kernel):
    return parse(
        {
            "mode": "sync", "device": "cuda", "model": "example", "data": "example",
            "profile": {"kernel": {"steps": [8], **kernel}},
        }
    )  # fmt: skip


# -- what verl is told ---------------------------------------------------------------------


def test_verl_profiles_the_chosen_steps_without_stacks(tmp_path):
    found = overrides(config(ranks=[0, 3]), tmp_path)
    assert found["global_profiler.tool"] == "torch"
    assert found["global_profiler.steps"] == [8]
    assert found["global_profiler.save_path"] == str(tmp_path / "kernel")
    actor = "actor_rollout_ref.actor.profiler"
    assert (found[f"{actor}.enable"], found[f"{actor}.ranks"]) == (True, [0, 3])
    assert found[f"{actor}.tool_config.torch.contents"] == ["cuda"]
    assert found[f"{actor}.tool_config.torch.discrete"] is True
    # The engine's profiler would follow the actor's.
    assert found["actor_rollout_ref.rollout.profiler.enable"] is False


@pytest.mark.parametrize(
    ("change", "tool", "contents"),
    [({"tool": "nsys"}, "nsys", None), ({"tool": "npu"}, "npu", ["npu"])],
)
def test_other_tools(tmp_path, change, tool, contents):
    found = overrides(config(**change), tmp_path)
    assert found["global_profiler.tool"] == tool
    key = f"actor_rollout_ref.actor.profiler.tool_config.{tool}.contents"
    assert found.get(key) == contents


def test_no_window_changes_nothing(tmp_path):
    plain = parse({"mode": "sync", "model": "example", "data": "example"})
    assert overrides(plain, tmp_path) == {}
    assert limits(plain) == {}
    assert estimated_bytes(plain, lambda _: None) == 0


def test_the_ranks_are_told_their_bounds(tmp_path):
    environment = plan.recording_environment(config(max_seconds=5), "r1", tmp_path)
    told = json.loads(environment["RLINSIGHT_COLLECTORS"])["kernel"]
    assert told == {"roles": ["actor_update"], "max_seconds": 5.0}


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ({"steps": []}, "profile.kernel.steps"),
        ({"roles": ["actor_updat"]}, "did you mean `actor_update`?"),
        ({"max_seconds": 0}, "profile.kernel.max_seconds"),
        ({"stacks": True}, "profile.kernel.stacks: unknown key"),
    ],
)
def test_a_wrong_window_is_named(kernel, says):
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        config(**kernel)


def test_the_estimate_grows_with_steps_and_micro_batches(monkeypatch):
    sizes = {"data.train_batch_size": 64, "actor_rollout_ref.rollout.n": 4}
    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    monkeypatch.setattr(kernel_window, "fused_log_probs", lambda: True)
    one = estimated_bytes(config(), {**sizes, micro: 32}.get)
    # 8 micro-batches x 32 layers (not known here) x 700 rows x 15 bytes.
    assert one == 8 * 32 * 700 * 15
    assert estimated_bytes(config(steps=[8, 9]), {**sizes, micro: 32}.get) == 2 * one
    assert estimated_bytes(config(), {**sizes, micro: 16}.get) == 2 * one
    monkeypatch.setattr(kernel_window, "fused_log_probs", lambda: False)
    looped = estimated_bytes(config(), {**sizes, micro: 32, "data.max_response_length": 512}.get)
    assert looped == one + 256 * 256 * 60 * 15


# -- inside a rank -------------------------------------------------------------------------


class Profiler:
    """Counts what is done to it, as `torch.profiler.profile` would be used."""

    def __init__(self, export_s=0.0):
        self.calls = []
        self.on_trace_ready = lambda _: (time.sleep(export_s), self.calls.append("export"))

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")
        self.on_trace_ready(self)


def module(profiler):
    found = types.ModuleType("torch_profile")
    found.get_torch_profiler = lambda **_: profiler
    kernel._install(found, kernel.HOOKS[0])
    return found


@pytest.fixture
def bounds(monkeypatch):
    def set_bounds(**kernel_bounds):
        told = {"kernel": {"roles": ["actor_update"], "max_seconds": 20, **kernel_bounds}}
        monkeypatch.setenv("RLINSIGHT_COLLECTORS", json.dumps(told))

    return set_bounds


def test_only_the_chosen_stages_are_collected(bounds):
    bounds()
    profiler = Profiler()
    other = module(profiler).get_torch_profiler(role="actor_compute_log_prob")
    other.start()
    other.stop()
    assert profiler.calls == []
    chosen = module(profiler).get_torch_profiler(role="actor_update", profile_step=8)
    chosen.start()
    chosen.stop()
    assert profiler.calls == ["start", "stop", "export"]


def test_without_bounds_verl_profiles_as_it_likes(monkeypatch):
    monkeypatch.delenv("RLINSIGHT_COLLECTORS", raising=False)
    profiler = Profiler()
    assert module(profiler).get_torch_profiler(role="actor_update") is profiler


def test_collecting_ends_at_the_first_micro_batch_after_the_limit(bounds):
    bounds(max_seconds=0.01)
    profiler = Profiler()
    window = module(profiler).get_torch_profiler(role="actor_update")
    window.start()
    kernel._micro_batch(None)
    assert profiler.calls == ["start"]
    time.sleep(0.02)
    kernel._micro_batch(None)
    assert profiler.calls == ["start", "stop", "export"]
    window.stop()  # verl's own stop, later
    assert profiler.calls == ["start", "stop", "export"]


def test_training_does_not_wait_for_a_slow_file(bounds):
    bounds(max_seconds=0.05)
    profiler = Profiler(export_s=0.5)
    window = module(profiler).get_torch_profiler(role="actor_update")
    window.start()
    window.stop()
    assert profiler.calls == ["start", "stop"]
    deadline = time.monotonic() + 10
    while "export" not in profiler.calls and time.monotonic() < deadline:
        time.sleep(0.01)
    assert profiler.calls[-1] == "export"  # but it is written


# -- the file ------------------------------------------------------------------------------


def event(category, name, start, end, tid=1, **more):
    """A complete event; times in microseconds from the base."""
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start,
            "pid": 0, "tid": tid, **more}  # fmt: skip


def write(folder, events, name="actor-rollout_actor-update_step8_rank1-of-2_pid7_1.json.gz"):
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 1}, "traceEvents": events,
    }  # fmt: skip
    (folder / name).write_bytes(gzip.compress(json.dumps(document).encode()))
    return folder / name


UPDATE = [
    event("Trace", "PyTorch Profiler (0)", 0, 10_000),
    event("user_annotation", "actor_update", 1000, 9000),
    event("cpu_op", "aten::mm", 1000, 1100),
    event("kernel", "gemm", 2000, 4000, tid=7),
    event("kernel", "gemm", 3000, 5000, tid=8),  # another stream: overlaps
    event("kernel", "ncclDevKernel_AllReduce", 4500, 7000, tid=9),
    event("gpu_memcpy", "Memcpy HtoD", 8000, 8500, tid=7),
    {"ph": "i", "cat": "cpu_op", "name": "Record Window End", "ts": 10_000, "pid": ""},
]


def test_busy_is_a_union_and_communication_is_what_nothing_overlaps(tmp_path):
    window = read_window(write(tmp_path, UPDATE))
    assert (window.role, window.step, window.rank, window.source) == (
        "actor_update", 8, 1, "device",
    )  # fmt: skip
    assert (window.start_ns, window.end_ns) == (BASE_NS + 1000 * US, BASE_NS + 9000 * US)
    assert window.busy_ns == (5000 + 500) * US  # 2000-7000 and 8000-8500
    assert window.communication_ns == 2500 * US
    assert window.exposed_communication_ns == 2000 * US  # 5000-7000
    assert window.longest_gap_ns == 1000 * US
    top = window.top[0]
    assert (top.name, top.count, top.total_ns) == ("gemm", 2, 4000 * US)


def test_the_trace_gets_the_window_its_kernels_and_how_busy_it_was(tmp_path):
    write(tmp_path / "t" / "kernel", UPDATE)
    with rlinsight.TraceWriter(tmp_path / "t") as writer:
        assert import_folder(tmp_path / "t" / "kernel", writer) == []
    (stage,) = rlinsight.open(tmp_path / "t").analyze(window=(0, 2 * BASE_NS)).devices.kernels
    assert (stage.lane, stage.role, stage.step) == ("trainer/rank1", "actor_update", 8)
    assert stage.busy == pytest.approx(5500 / 8000)
    assert stage.exposed_communication == pytest.approx(2000 / 8000)
    assert stage.top[0].share == pytest.approx(4000 / 8000)


def test_a_profile_without_device_rows_counts_outermost_operators(tmp_path):
    nested = [event("cpu_op", "aten::linear", 0, 50), event("cpu_op", "aten::addmm", 10, 40)]
    window = read_window(write(tmp_path, nested))
    assert (window.source, window.launches, window.busy_ns) == ("host", 1, 50 * US)


@pytest.mark.parametrize(
    ("stage", "role", "operators", "first"),
    [
        ("actor_actor_compute_log_prob", "actor_compute_log_prob", 10, "aten::linear"),
        ("actor_actor_update", "actor_update", 72, "c10d::allreduce_"),
    ],
)
def test_files_that_verl_wrote(stage, role, operators, first):
    """Two ranks on CPUs, verl 0.9.1: no device rows, outermost operators of rank 0."""
    (path,) = (Path(__file__).parent / "data/torch_profiler").glob(f"{stage}_*.json.gz")
    window = read_window(path)
    assert (window.role, window.step, window.rank, window.source) == (role, 1, 0, "host")
    assert window.launches == operators
    assert window.top[0].name == first
    assert 0 < window.busy_ns < window.end_ns - window.start_ns
    # Collectives of a profile without device rows are operators, too.
    assert (window.communication_ns > 0) is (stage == "actor_actor_update")


def test_an_engines_file_is_its_replicas(tmp_path):
    name = "rollout-replica2_1796062767031293387-rank-0.1.pt.trace.json.gz"
    assert read_window(write(tmp_path, UPDATE, name)).lane == "replica2"


def test_times_given_as_text_keep_their_digits(tmp_path):
    text = event("kernel", "k", 0, 0) | {"ts": "1234567890123.456", "dur": "1.001"}
    window = read_window(write(tmp_path, [text]))
    assert window.start_ns == BASE_NS + 1_234_567_890_123_456
    assert window.busy_ns == 1001


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(b'{"traceEvents": [', mtime=0)[:-6], "cannot be read"),
        (b"[]", "expected a JSON object"),
        (b'{"traceEvents": []}', "expected `baseTimeNanoseconds`"),
        (b'{"baseTimeNanoseconds": 1, "traceEvents": []}', "no kernel and no operator"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_costs_only_itself(tmp_path, content, says):
    folder = tmp_path / "kernel"
    good = write(folder, UPDATE)
    (folder / "bad.json.gz").write_bytes(content)
    with pytest.raises(TraceError, match=says):
        read_window(folder / "bad.json.gz")
    with rlinsight.TraceWriter(tmp_path / "t") as writer:
        (problem,) = import_folder(folder, writer)
    assert "bad.json.gz" in problem
    assert good.exists()


def test_interval_algebra():
    busy = union([(5, 9), (0, 2), (1, 3), (4, 4)])
    assert busy == [(0, 3), (5, 9)]
    assert length(busy) == 7
    assert clipped(busy, (1, 6)) == [(1, 3), (5, 6)]
    assert overlap(busy, [(2, 6), (8, 20)]) == 3
    assert shares(busy, (0, 10), 4) == [(4, 0.75), (8, 0.75), (10, 0.5)]
