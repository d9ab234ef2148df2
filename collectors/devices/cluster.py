"""Samplers on the other nodes of a Ray cluster: one small actor each, which owns the process."""

from __future__ import annotations

from typing import Any

from rlinsight.collectors.devices import launch


class NodeSampler:
    """Runs the sampler of the node it is placed on; when it ends, so does the sampler.

    A plain class: `ray.remote(NodeSampler)` makes the actor.
    """

    def __init__(self, trace_path: str, interval_s: float, run_id: str) -> None:
        self._process = launch.start(trace_path, interval_s, run_id=run_id)

    def pid(self) -> int | None:
        """Return the pid of the sampler, None when it has ended."""
        return self._process.pid if self._process.poll() is None else None

    def stop(self) -> int:
        """End the sampler; its rows are on this node's disk afterwards. Returns its exit code."""
        return launch.stop(self._process)


def start_on_other_nodes(trace_path: str, interval_s: float, run_id: str) -> dict[str, Any]:
    """Start a sampler on every living node but this one; return the actors by Ray node id.

    The caller is connected to the cluster and keeps what is returned until `stop_on_nodes`:
    an actor ends when nobody holds it. The nodes must have this package installed.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    actor = ray.remote(num_cpus=0, max_restarts=-1)(NodeSampler)
    samplers = {}
    for node in ray.nodes():
        if node["Alive"] and node["NodeID"] != here:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            started = actor.options(scheduling_strategy=place)
            samplers[node["NodeID"]] = started.remote(trace_path, interval_s, run_id)
    return samplers


def stop_on_nodes(samplers: dict[str, Any], timeout_s: float = 10.0) -> dict[str, str]:
    """Stop the samplers; return, by Ray node id, why one could not be stopped properly.

    One that cannot be reached ends by itself once its actor or its node's run is gone.
    """
    import ray

    failed = {}
    for node, sampler in samplers.items():
        try:
            code = ray.get(sampler.stop.remote(), timeout=timeout_s)
            if code != 0:
                failed[node] = f"exit code {code}"
        except Exception as error:
            failed[node] = f"{type(error).__name__}: {error}".splitlines()[0]
        ray.kill(sampler)
    return failed
