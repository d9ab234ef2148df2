"""Runs for the preflight checks: what their configuration and verl's settings would say."""

from __future__ import annotations

from pathlib import Path

from dotted_keys import nested

from rlinsight.runs.checks.facts import Facts
from rlinsight.runs.profile import parse
from rlinsight.runs.settings import Settings

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def facts(mode="sync", *, settings=None, trainer=(1, 8), rollout=None, environment=None, **more):
    """A run of `mode` whose verl would see `settings` (dotted keys)."""
    if rollout is None and mode in ("separate_async", "fully_async"):
        rollout = (1, 8)
    resources = {"trainer": pool(trainer), **more.pop("resources", {})}
    if rollout is not None:
        resources["rollout"] = pool(rollout)
    trace = more.pop("trace", Path("/tmp/not-there/trace"))
    document = {"mode": mode, "model": "example", "data": "example", "resources": resources, **more}
    return Facts(
        config=parse(document),
        trace=trace,
        settings=Settings(nested(settings or {})),
        environment=environment or {},
    )


def pool(shape):
    return {"nodes": shape[0], "devices_per_node": shape[1]}
