"""Runs on a Ray cluster of two real nodes: gathering, clocks, and submission as a job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from pathlib import Path

import pytest

import rlinsight
from rlinsight.runs.nodes import Nodes, cluster_address
from rlinsight.trace.manifest import update_manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"
RUN_ID = "gather-test"

#: Records one span on each node, on a lane of its name, as a worker that Ray started there would.
RECORD = """
    import sys
    import ray

    @ray.remote(num_cpus=0)
    def work():
        import os
        import rlinsight
        with rlinsight.span("update_actor", lane="on_" + os.environ["RLINSIGHT_NODE"], step=1):
            pass
        rlinsight.stop()

    ray.init(sys.argv[1], log_to_driver=False)
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
    for node in ray.nodes():
        where = On(node["NodeID"], soft=False)
        ray.get(work.options(scheduling_strategy=where).remote())
    """


class Cluster:
    """The program `ray_cluster.py`, going on."""

    def __init__(self, folder: str, nodes: list[dict[str, str]], *, dashboard: bool) -> None:
        wanted = json.dumps({"nodes": nodes, "dashboard": dashboard})
        program = Path(__file__).with_name("ray_cluster.py")
        self.environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(
            [sys.executable, program, wanted],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addresses = json.loads(self._process.stdout.readline())

    def lose_a_node(self) -> None:
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def run(self, script: str, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *arguments],
            env=self.environment,
            check=True,
            timeout=90,
        )

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The trace folders of the two nodes, which do not see each other's."""
    folder = tmp_path_factory.mktemp("nodes")
    return folder / "here", folder / "there"


@pytest.fixture(scope="module")
def cluster(place):
    # Ray's socket paths must stay below 107 bytes, which pytest's folders would exceed.
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    nodes = [on_node(name, trace) for name, trace in zip("ab", place, strict=True)]
    cluster = Cluster(folder, nodes, dashboard=True)
    yield cluster
    cluster.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _we_are_on_the_first_node(monkeypatch):
    monkeypatch.setenv("RLINSIGHT_NODE", "a")


def on_node(name: str, trace: Path) -> dict[str, str]:
    return {
        "RLINSIGHT_NODE": name, "RLINSIGHT_TRACE": str(trace), "RLINSIGHT_RUN_ID": RUN_ID,
    }  # fmt: skip


def lanes(trace: Path) -> set[str]:
    return set(rlinsight.open(trace).spans.collect()["lane"])


def test_files_that_only_another_node_has_are_gathered_and_clocks_compared(cluster, place):
    here, there = place
    gcs = cluster.addresses["gcs"]
    nodes = Nodes(here, RUN_ID, gcs)
    nodes.begin(0.2, sample_here=False)
    cluster.run(RECORD, gcs)
    assert lanes(here) == {"on_a"}

    gathered = nodes.finish()

    assert gathered.failed == {}
    assert sorted(gathered.nodes) == ["a", "b"]
    assert lanes(here) == {"on_a", "on_b"}
    assert gathered.files == len(list((there / "live").iterdir()))
    assert gathered.bytes == sum(path.stat().st_size for path in (there / "live").iterdir())
    sampled = set(rlinsight.open(here).counters.collect()["lane"])
    assert "b" in sampled  # its host; this node is the launcher's to sample
    assert "a" not in sampled
    assert nodes.clocks.reference == "a"
    estimates = nodes.clocks.of("b").estimates
    assert len(estimates) == 2  # at the start and at the end
    # Both nodes are this machine: the true offset is 0, and must lie within the stated error.
    assert all(abs(e.offset_ns) <= e.residual_ns for e in estimates)
    update_manifest(here, clock=nodes.clocks)
    assert rlinsight.open(here).manifest.clock.reference == "a"

    assert Nodes(here, RUN_ID, gcs).finish().files == 0  # nothing twice
    new = here.with_name("new")
    assert Nodes(new, "a-later-run", gcs).finish().files == 0  # nothing of an older run


def test_a_cluster_that_is_gone_is_reported_and_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.setattr("rlinsight.runs.nodes._TIMEOUT_S", 20.0)
    gathered = Nodes(tmp_path, RUN_ID, "127.0.0.1:1").finish()
    assert gathered.files == 0
    assert list(gathered.failed) in (["127.0.0.1:1"], ["cluster"])


def test_without_a_cluster_there_is_nothing_to_gather(tmp_path):
    nodes = Nodes(tmp_path, RUN_ID, None)
    nodes.begin(0.2, sample_here=False)
    assert nodes.finish() is None
    assert cluster_address(None, {"RAY_ADDRESS": "local"}) is None


@pytest.mark.quiet
def test_a_run_is_submitted_as_a_job_and_its_environment_reaches_the_workers(cluster, tmp_path):
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import ray, rlinsight, os

            @ray.remote
            def work():
                with rlinsight.span("update_actor", lane="worker", step=1):
                    pass
                rlinsight.stop()
                return os.environ["GREETING"]

            ray.init(log_to_driver=False)
            print("the worker says", ray.get(work.remote()), flush=True)
            raise SystemExit(5)
            """
        )
    )
    (tmp_path / "c.yaml").write_text(
        f"ray_address: {cluster.addresses['dashboard']}\nenvironment: {{GREETING: hello}}\n"
    )
    done = subprocess.run(
        [CLI, "run", "-p", "c.yaml", "--trace", "trace", "--",
         sys.executable, str(tmp_path / "train.py")],
        cwd=tmp_path, env=cluster.environment, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stdout + done.stderr
    assert "the worker says hello" in (tmp_path / "trace" / "console.log").read_text()
    assert lanes(tmp_path / "trace") == {"worker"}


def test_a_lost_node_costs_only_its_own_files(cluster, place):
    here, _ = place
    cluster.lose_a_node()
    gathered = Nodes(here, RUN_ID, cluster.addresses["gcs"]).finish()
    assert gathered.nodes == ["a"]
