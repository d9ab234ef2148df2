"""What must agree before two runs can be compared: configuration, model, hardware, software.

The resolved configuration counts in full, less what says where things lie or how long the run
is: those change from one run to the next and make no step slower.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from rlinsight.trace.manifest import Manifest

#: Keys of the configuration (fnmatch patterns) that name places, lengths of runs, or loggers.
VOLATILE: Final = (
    "*_target_*",
    "*.profiler.*",
    "global_profiler.*",
    "*dump_dir",
    "*prometheus*",
    "ray_kwargs.*",
    "trainer.default_local_dir",
    "*experiment_name",
    "trainer.logger",
    "*project_name",
    "trainer.resume_*",
    "trainer.rollout_data_dir",
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "trainer.validation_data_dir",
    "*.total_training_steps",
    "rollout.total_rollout_steps",
)
#: Keys that only some machines have.
POSSIBLE: Final = (
    "mode", "engine", "hardware.nodes", "hardware.trainer", "hardware.rollouter",
    "hardware.hybrid_replicas", "hardware.standalone_replicas", "hardware.colocated_replicas",
    "hardware.cpus_per_node", "hardware.device_models",
    "versions.nvidia_driver",
)  # fmt: skip
#: The tool's own version does not change what it measures.
_OWN: Final = "rlinsight"


def identity(manifest: Manifest) -> dict[str, str]:
    """Return the identity of a run by dotted key.

    A path counts by its last part: the same model lies elsewhere on another machine.

    Worked example: verl 0.9.1 in mode sync on one CPU gives, among others, `mode` = `sync`,
    `hardware.trainer` = `1 x cpu`, `versions.verl` = `0.9.1`, `config.data.train_batch_size`
    = `8`.
    """
    found = {"mode": manifest.mode, "engine": manifest.engine, **_hardware(manifest)}
    found |= {f"versions.{k}": _version(k, v) for k, v in manifest.versions.items() if k != _OWN}
    flat = dict(_flat(manifest.config))
    found |= {f"config.{k}": v for k, v in flat.items() if not matches(k, VOLATILE)}
    return {key: _text(value) for key, value in found.items() if value is not None}


def identity_key(identity: Mapping[str, str]) -> str:
    """Return a short digest of an identity."""
    text = json.dumps(dict(sorted(identity.items())), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differing(
    one: Mapping[str, str], other: Mapping[str, str], ignore: Sequence[str] = ()
) -> dict[str, tuple[str | None, str | None]]:
    """Return key -> (value in `one`, value in `other`) where they differ; None is absent.

    Mode, hardware and software come first. `ignore` are fnmatch patterns of keys that need not
    agree.
    """
    keys = sorted({*one, *other}, key=lambda key: (key.startswith("config."), key))
    return {
        key: (one.get(key), other.get(key))
        for key in keys
        if one.get(key) != other.get(key) and not matches(key, ignore)
    }


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the fnmatch `patterns` is of `name`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _hardware(manifest: Manifest) -> dict[str, Any]:
    topology = manifest.topology
    found: dict[str, Any] = {"hardware.nodes": len({d.node for d in topology.devices}) or None}
    for pool, name in (("trainer", "trainer"), ("rollout", "rollouter")):
        kinds = [device.kind for device in topology.devices if device.pool == pool]
        if kinds:
            counted = (f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds)))
            found[f"hardware.{name}"] = " + ".join(counted)
    for kind in ("hybrid", "standalone", "colocated"):
        replicas = [lane for lane in topology.replicas() if lane.engine_kind == kind]
        found[f"hardware.{kind}_replicas"] = len(replicas) or None
    return found | _machines(manifest)


def _machines(manifest: Manifest) -> dict[str, Any]:
    """Return what the device samplers say of each kind of machine, whatever its name is."""
    hosts = _notes(manifest, "host.")
    cpus = {host["usable_cpus"] for host in hosts if "usable_cpus" in host}
    sampled = [d for note in _notes(manifest, "sampled_devices.") for d in note.values()]
    models = {str(device["name"]) for device in sampled if "name" in device}
    drivers = {str(v) for k, v in manifest.notes.items() if k.startswith("nvidia_driver.")}
    return {
        "hardware.cpus_per_node": ", ".join(map(str, sorted(cpus))) or None,
        "hardware.device_models": ", ".join(sorted(models)) or None,
        "versions.nvidia_driver": ", ".join(sorted(drivers)) or None,
    }


def _notes(manifest: Manifest, prefix: str) -> list[dict[str, Any]]:
    notes = (note for key, note in manifest.notes.items() if key.startswith(prefix))
    return [note for note in notes if isinstance(note, dict)]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None and value not in ([], ""):
            yield f"{prefix}{key}", value


def _version(package: str, version: str) -> str:
    """A patch release of Python does not change what runs."""
    return ".".join(version.split(".")[:2]) if package == "python" else version


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    text = str(value)
    return text.rstrip("/").rsplit("/", 1)[-1] if text.startswith(("/", "~", "<")) else text
