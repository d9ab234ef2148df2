"""Hooked classes on their way into other processes, where they must record as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import rlinsight

#: The shape of verl's actors: Ray exports them by value, with whatever is hooked into them.
ACTOR = """
import asyncio, sys, types
import ray
from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.hooks import Hook
from hooked_by_value import note_call

@ray.remote(num_cpus=0)
class Queue:
    def __init__(self, size):
        self.size = size

    async def put(self, item):
        return item * self.size

module = types.ModuleType("somewhere")
module.Queue = Queue
hook = Hook("queue.put", "somewhere", "Queue.put", "a test", exit=note_call)
wrap.apply(module, hook)
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
queue = Queue.remote(2)
assert ray.get(queue.put.remote("ab")) == "abab"
ray.shutdown()
"""

CALLBACK = """
def note_call(call):
    call.rec.marker("hooked", lane="queue", reason=call.result, attrs={"size": call.obj.size})
    call.rec.flush()
"""


def run(script: str, folder: Path, **environment: str) -> str:
    """Run `script` in an interpreter of its own and return what it printed."""
    (folder / "hooked_by_value.py").write_text(CALLBACK)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder), "RAY_USAGE_STATS_ENABLED": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def markers(trace: Path) -> list[dict[str, Any]]:
    return rlinsight.open(trace).markers.collect().to_dicts()


def test_an_actor_records_from_the_process_it_runs_in(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    run(ACTOR, tmp_path, RLINSIGHT_TRACE=str(trace))
    (marker,) = markers(trace)
    assert (marker["kind"], marker["lane"], marker["reason"]) == ("hooked", "queue", "abab")


def test_importing_the_plugin_without_a_recording_imports_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, rlinsight.collectors.verl.plugin\n"
        "heavy = {'pyarrow', 'torch', 'ray', 'verl', 'polars', 'rlinsight.collectors.verl.hooks'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "RLINSIGHT_TRACE"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_with_a_recording_the_plugin_awaits_the_modules_and_imports_none(tmp_path: Path) -> None:
    script = (
        "import sys, rlinsight.collectors.verl.plugin\n"
        "from rlinsight.collectors.verl.imports import waiting\n"
        "assert 'verl.utils.tracking' in waiting(), waiting()\n"
        "print(sorted({'torch', 'ray', 'verl', 'vllm', 'polars'} & set(sys.modules)))\n"
    )
    assert run(script, tmp_path, RLINSIGHT_TRACE=str(tmp_path / "trace")) == "[]\n"


def test_verl_loads_the_plugin_and_the_manifest_says_what_was_hooked(tmp_path: Path) -> None:
    script = (
        "import verl.utils.tracking as tracking\n"
        "from verl.utils.profiler.performance import simple_timer\n"
        "with simple_timer('gen', times := {}): pass\n"
        "assert list(times) == ['gen'], times\n"
        "tracking.Tracking('p', 'e', ['console']).log({'loss': 0.5, 'name': 'x'}, step=3)\n"
    )
    trace = tmp_path / "trace"
    off = '{"disable": ["trainer.timer"]}'
    run(script, tmp_path, RLINSIGHT_TRACE=str(trace), RLINSIGHT_COLLECTORS=off)
    recorded = rlinsight.open(trace)
    assert recorded.metrics.select("step", "key", "value").collect().rows() == [(3, "loss", 0.5)]
    (process,) = recorded.processes
    assert process.hooks["tracking.log"].status == "installed"
    assert process.hooks["trainer.timer"].status == "skipped"
    assert "turned off" in process.hooks["trainer.timer"].reason
