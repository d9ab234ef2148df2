"""Preflight: a Ray cluster that runs already, and the job server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from preflight_facts import facts

from rlinsight.runs.checks import cluster
from rlinsight.runs.checks.facts import Facts


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
