"""A plugin of verl that makes the actor's update slower: a regression made to order.

verl imports it in every process (entry point `verl.plugins`, found through PYTHONPATH) and it
wraps the update of verl's worker, as a careless change of verl itself would do; nothing of the
product is touched. SLOW_UPDATE_ACTOR_S is how many seconds each update is delayed by.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
import time

MODULE = "verl.workers.engine_workers"
DELAY_S = float(os.environ.get("SLOW_UPDATE_ACTOR_S", "0"))


def slow(worker: type) -> None:
    update = worker.update_actor

    @functools.wraps(update)  # verl marks its methods with attributes
    def delayed(*args, **kwargs):
        time.sleep(DELAY_S)
        return update(*args, **kwargs)

    worker.update_actor = delayed


class AfterImport(importlib.abc.MetaPathFinder):
    """Plugins are imported before verl's own modules: wait for the one to change."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module) -> None:
            run(module)
            slow(module.ActorRolloutRefWorker)

        spec.loader.exec_module = exec_module
        return spec


if DELAY_S > 0:
    sys.meta_path.insert(0, AfterImport())
