"""Two Ray nodes on this machine, for tests; a program of its own that ends with its input.

    python tests/ray_cluster.py JSON    {"dashboard": bool, "nodes": [environment, ...]}

It prints one JSON line with the addresses, and one more per command read: `lose` kills the
last node. RAY_TMPDIR must be set, so that nobody else's `ray.init()` finds this cluster.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from ray.cluster_utils import Cluster

MEMORY = 80 * 2**20


def main() -> None:
    assert "RAY_TMPDIR" in os.environ
    wanted = json.loads(sys.argv[1])
    head, *others = wanted["nodes"]
    port = free_port()
    dashboard = {"include_dashboard": wanted["dashboard"], "dashboard_port": port}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4, "object_store_memory": MEMORY, "env_vars": head, **dashboard,
        },
    )  # fmt: skip
    nodes = [
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY, env_vars=env) for env in others
    ]
    answer = {"gcs": cluster.address, "dashboard": f"http://127.0.0.1:{port}"}
    print(json.dumps(answer), flush=True)
    for command in sys.stdin:
        if command.strip() == "lose":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("{}", flush=True)
    cluster.shutdown()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
