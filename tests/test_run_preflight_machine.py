"""Preflight: files, devices, ports, disk and software that a run needs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from preflight_facts import ROLLOUT, facts

from rlinsight.runs import kernel_window
from rlinsight.runs.checks import estimate, machine, software
from rlinsight.runs.checks.facts import Facts

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


def test_a_cluster_that_runs_here_has_devices_that_this_machine_has_not(tmp_path):
    """`ray start` leaves a note, and `ray.init()` joins what it names without RAY_ADDRESS."""
    with socket.create_server(("127.0.0.1", 0)) as head:
        (tmp_path / "ray").mkdir()
        note = tmp_path / "ray" / "ray_current_cluster"
        note.write_text(f"127.0.0.1:{head.getsockname()[1]}")
        joins = {"RAY_TMPDIR": str(tmp_path)}
        assert machine.devices_exist(facts(trainer=(8, 8), environment=joins)) is None
        own = joins | {"RAY_ADDRESS": "local"}
        assert machine.devices_exist(facts(trainer=(8, 8), environment=own)) is not None


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, 2),
        ("0", 1),
        ("0,1,2,3", 2),  # no more than there are
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("NoDevFiles", 0),
        ("MIG-a,MIG-b,MIG-c", 3),  # parts of one of the two
        ("MIG-a,MIG-b,GPU-1", 3),
    ],
)
def test_devices_are_counted_as_cuda_counts_them(monkeypatch, tmp_path, visible, found):
    for name in ("GPU-0", "GPU-1"):
        (tmp_path / name).touch()
    monkeypatch.setattr(machine, "_DRIVER_LIST", tmp_path)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert machine.local_devices(facts(environment=environment)) == found


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


def test_a_profile_that_nobody_could_open_is_warned_of(monkeypatch):
    monkeypatch.setattr(kernel_window, "fused_log_probs", lambda: False)
    window = {"kernel": {"steps": list(range(1, 11))}}
    sizes = {
        "data.train_batch_size": 512, f"{ROLLOUT}.n": 8, "data.max_response_length": 4096,
    }  # fmt: skip
    found = machine.kernel_window_is_small(facts(settings=sizes, profile=window))
    assert "MiB (compressed); choose fewer" in found.message
    assert machine.kernel_window_is_small(facts(settings=sizes)) is None


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
