"""A large synthetic trace: what a fully asynchronous run on hundreds of devices would leave.

Half of the lanes are trainer ranks, a quarter replicas with a device of their own; steps,
phases, requests and samples follow each other as in a real run, with seeded jitter.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import rlinsight
from rlinsight.trace.schema import TABLES, TableName

S = 1_000_000_000
STEP_S = 10.0
PHASES = (("wait_samples", 0.3), ("old_log_prob", 0.1), ("update_actor", 0.5), ("reward", 0.05))


def topology(lanes: int) -> rlinsight.Topology:
    """Return `lanes` lanes: a driver, a rollouter, ranks and replicas, a device each."""
    ranks, replicas = lanes // 2, lanes - lanes // 2 - 2
    devices = [
        rlinsight.Device(f"t/{i}", node="t", index=i, kind="cuda", pool="trainer")
        for i in range(ranks)
    ] + [
        rlinsight.Device(f"r/{i}", node="r", index=i, kind="cuda", pool="rollout")
        for i in range(replicas)
    ]
    rows = [
        rlinsight.Lane("trainer", role="trainer"),
        rlinsight.Lane("rollouter", role="rollouter"),
    ]
    rows += [
        rlinsight.Lane(f"trainer/rank{i}", role="trainer_rank", devices=[f"t/{i}"], rank=i)
        for i in range(ranks)
    ]
    rows += [
        rlinsight.Lane(
            f"replica{i}", role="replica", devices=[f"r/{i}"], engine_kind="standalone", capacity=64
        )
        for i in range(replicas)
    ]
    return rlinsight.Topology(devices, rows)


def write(path: Path, *, spans: int, requests: int, samples: int, lanes: int) -> None:
    """Write a compacted trace of about the given sizes into `path`."""
    shape = topology(lanes)
    rng = np.random.default_rng(7)
    ranks = [lane.id for lane in shape.lanes if lane.role == "trainer_rank"]
    steps = max(1, spans // (len(ranks) * len(PHASES)))
    seconds = steps * STEP_S
    with rlinsight.TraceWriter(path, mode="fully_async", topology=shape) as writer:
        _stream(path, "spans", _rank_spans(rng, ranks, steps))
        _stream(path, "spans", _driver_spans(rng, steps), pid=2)
        _stream(path, "requests", _requests(rng, shape, requests, seconds))
        _stream(path, "samples", _samples(rng, samples, steps))
        for version in range(0, steps, 4):
            for replica in shape.replicas():
                ts_ns = round(version * STEP_S * S)
                writer.marker(
                    "param_sync", lane=replica.id, param_version=version // 4, ts_ns=ts_ns
                )
    rlinsight.compact(path)


def _rank_spans(rng: np.random.Generator, ranks: list[str], steps: int) -> dict[str, object]:
    lane, step, phase = (
        axis.ravel() for axis in np.indices((len(ranks), steps, len(PHASES)), dtype=np.int32)
    )
    length = np.array([share for _, share in PHASES])[phase] * STEP_S
    offset = np.concatenate([[0.0], np.cumsum([share for _, share in PHASES])[:-1]])[phase] * STEP_S
    start = step * STEP_S + offset + rng.uniform(0, 0.01, len(step))
    return {
        "start_ns": (start * S).astype(np.int64),
        "end_ns": ((start + length * rng.uniform(0.9, 0.99, len(step))) * S).astype(np.int64),
        "activity": _names(phase, [name for name, _ in PHASES]),
        "lane": _names(lane, ranks),
        "step": step,
        "param_version": step // 4,
    }


def _driver_spans(rng: np.random.Generator, steps: int) -> dict[str, object]:
    step = np.arange(steps, dtype=np.int32)
    start = (step * STEP_S * S).astype(np.int64)
    wait = (rng.uniform(1, 4, steps) * S).astype(np.int64)
    columns: dict[str, list[object]] = {"start": [], "end": [], "name": []}
    for name, begin, end in (
        (0, start, start + round(STEP_S * S) - 1),
        (1, start, start + wait),
        (2, start + wait, start + round(0.95 * STEP_S * S)),
    ):
        columns["start"].append(begin)
        columns["end"].append(end)
        columns["name"].append(np.full(steps, name, np.int32))
    names = np.concatenate(columns["name"])
    return {
        "start_ns": np.concatenate(columns["start"]),
        "end_ns": np.concatenate(columns["end"]),
        "activity": _names(names, ["step", "wait_samples", "update_actor"]),
        "lane": _names(np.zeros(len(names), np.int32), ["trainer"]),
        "step": np.tile(step, 3),
        "param_version": np.tile(step // 4, 3),
    }


def _requests(
    rng: np.random.Generator, shape: rlinsight.Topology, count: int, seconds: float
) -> dict[str, object]:
    replicas = [lane.id for lane in shape.replicas()]
    lane = rng.integers(0, len(replicas), count, dtype=np.int32)
    tokens = np.minimum(rng.lognormal(6.5, 0.8, count), 4096).astype(np.int32)
    submit = rng.uniform(0, seconds, count)
    end = submit + 0.05 + tokens * 0.004
    version = (submit / (4 * STEP_S)).astype(np.int32)
    return {
        "request_id": np.char.add("r", np.arange(count).astype(str)),
        "sample_uid": np.char.add("s", np.arange(count).astype(str)),
        "lane": _names(lane, replicas),
        "engine_kind": _names(np.zeros(count, np.int32), ["standalone"]),
        "submit_ns": (submit * S).astype(np.int64),
        "end_ns": (end * S).astype(np.int64),
        "prompt_tokens": np.full(count, 120, np.int32),
        "response_tokens": tokens,
        "version_start": version,
        "version_end": (end / (4 * STEP_S)).astype(np.int32),
        "finish": _names((tokens >= 4096).astype(np.int32), ["stop", "length"]),
        "attempt": np.ones(count, np.int32),
        "validate": np.zeros(count, bool),
    }


def _samples(rng: np.random.Generator, count: int, steps: int) -> dict[str, object]:
    step = np.sort(rng.integers(0, steps, count)).astype(np.int32)
    consumed = ((step + 0.3) * STEP_S * S).astype(np.int64)
    index = np.arange(count)
    return {
        "sample_uid": np.char.add("s", index.astype(str)),
        "group_uid": np.char.add("g", (index // 8).astype(str)),
        "produced_ns": consumed - (rng.uniform(0.1, 20, count) * S).astype(np.int64),
        "consumed_ns": consumed,
        "prompt_tokens": np.full(count, 120, np.int32),
        "response_tokens": np.minimum(rng.lognormal(6.5, 0.8, count), 4096).astype(np.int32),
        "version_start": np.maximum(step // 4 - rng.integers(0, 3, count), 0).astype(np.int32),
        "version_end": (step // 4).astype(np.int32),
        "trained_version": (step // 4).astype(np.int32),
        "trained_step": step,
        "reward": rng.normal(0.5, 0.2, count),
        "fate": _names(np.zeros(count, np.int32), ["trained"]),
    }


def _names(codes: np.ndarray, names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))


def _stream(path: Path, table: TableName, columns: dict[str, object], pid: int = 1) -> None:
    """Append columns as a live stream of a process of its own; absent ones are null."""
    schema = TABLES[table]
    rows = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[f.name], f.type)
        if f.name in columns and not isinstance(columns[f.name], pa.Array)
        else columns.get(f.name, pa.nulls(rows, f.type))
        for f in schema
    ]
    origin = {
        "rlinsight.table": table, "rlinsight.schema_version": "1", "rlinsight.node": "n0",
        "rlinsight.pid": str(pid), "rlinsight.run_id": path.name,
    }  # fmt: skip
    (path / "live").mkdir(parents=True, exist_ok=True)
    target = schema.with_metadata(origin)
    with pa.ipc.new_stream(str(path / "live" / f"{table}-n0-{pid}.arrows"), target) as stream:
        stream.write_table(pa.Table.from_arrays(arrays, schema=target), max_chunksize=1 << 16)
