"""Samplers on the other nodes of a real Ray cluster (its nodes share this machine)."""

from __future__ import annotations

import os
import warnings

import pytest
from device_stubs import counters, wait_for

import rlinsight

pytest.importorskip("ray")

SLOW = 60.0


@pytest.fixture
def cluster(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        import ray
        from ray.cluster_utils import Cluster

        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        nodes.add_node(num_cpus=1)
        ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
        yield ray
        ray.shutdown()
        nodes.shutdown()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(180)
def test_every_other_node_gets_one_and_it_leaves_with_its_actor(tmp_path, cluster):
    from rlinsight.collectors.devices.cluster import start_on_other_nodes, stop_on_nodes

    samplers = start_on_other_nodes(str(tmp_path / "trace"), 0.5, "r1")
    here = cluster.get_runtime_context().get_node_id()
    assert len(samplers) == 1
    assert here not in samplers
    (actor,) = samplers.values()
    pid = cluster.get(actor.pid.remote(), timeout=SLOW)
    assert pid != os.getpid()
    wait_for(lambda: list((tmp_path / "trace" / "live").glob("counters-*.arrows")), SLOW)
    assert stop_on_nodes(samplers, SLOW) == {}
    trace = rlinsight.open(tmp_path / "trace")
    (process,) = trace.manifest.processes
    assert (process.pid, process.run_id, process.ended_ns is not None) == (pid, "r1", True)
    assert "host_memory_total_bytes" in counters(trace, process.node)
