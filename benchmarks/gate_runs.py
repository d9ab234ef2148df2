"""Runs for trying the gate on: the same seeded steps as an observation, or as a real trace.

A trainer and a rollouter, a device each. A step waits for samples, takes log-probs, updates the
actor and syncs the weights; every fifth is followed by a validation. Times scale with the response
length of the step, and with noise: log-normal, neighbouring steps correlated, plus one factor per
run (machines differ). `slow` multiplies phases, `longer` the responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import rlinsight
from rlinsight.analyzers.gate.observation import Observation, Scalar

S = 1_000_000_000
EPOCH_NS = 1_790_000_000 * S
PROMPT, LENGTH, SAMPLES = 60, 200, 8
#: Seconds of each phase of a step of mean length, before noise.
PHASES = {"wait_samples": 2.0, "old_log_prob": 0.8, "update_actor": 3.0, "weight_sync": 0.2}
VALIDATION_S = 4.0
#: Correlation of the noise of neighbouring steps.
CORRELATION = 0.3


@dataclass(frozen=True)
class Kind:
    """What runs are like: `noise` is the relative spread per step, `machine` that between runs."""

    noise: float = 0.03
    machine: float = 0.0
    steps: int = 24
    length_spread: float = 0.08
    longer: float = 1.0
    slow: Mapping[str, float] = field(default_factory=dict)
    validate_every: int = 5


@dataclass(frozen=True)
class Step:
    """One step: seconds per phase, seconds of the validation after it, tokens of each response."""

    phases: dict[str, float]
    validation_s: float
    responses: list[int]

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


def steps(kind: Kind, seed: int) -> list[Step]:
    """Return the steps of one run; the first is warm-up and takes three times as long."""
    rng = np.random.default_rng(seed)
    noise = _correlated(rng, kind.steps, kind.noise)
    machine = float(np.exp(rng.normal(0, kind.machine)))
    found = []
    for i in range(kind.steps):
        mean = LENGTH * kind.longer * np.exp(rng.normal(0, kind.length_spread))
        responses = np.maximum(1, rng.lognormal(np.log(mean) - 0.08, 0.4, SAMPLES)).astype(int)
        factor = machine * noise[i] * (0.3 + 0.7 * responses.mean() / LENGTH) * (3 if i == 0 else 1)
        phases = {
            name: seconds * factor * kind.slow.get(name, 1.0) for name, seconds in PHASES.items()
        }
        validates = kind.validate_every and (i + 1) % kind.validate_every == 0
        validation = VALIDATION_S * machine * noise[i] if validates else 0.0
        found.append(Step(phases, validation, responses.tolist()))
    return found


def _correlated(rng: np.random.Generator, count: int, spread: float) -> np.ndarray:
    """Return factors of the given log-spread; neighbours correlate (first-order autoregression)."""
    fresh, value, found = np.sqrt(1 - CORRELATION**2), rng.normal(), []
    for _ in range(count):
        found.append(np.exp(spread * value))
        value = CORRELATION * value + fresh * rng.normal()
    return np.asarray(found)


def observation(kind: Kind, seed: int) -> Observation:
    """Return a run as the gate sees it, without writing a trace."""
    steady = steps(kind, seed)[1:]
    seconds = [step.seconds + step.validation_s for step in steady]
    lengths = [float(sum(step.responses)) for step in steady]
    wait, sync = ([s.phases[n] for s in steady] for n in ("wait_samples", "weight_sync"))
    busy = [total - waited for total, waited in zip(seconds, wait, strict=True)]
    columns = {
        "seconds": seconds,
        "samples": [float(SAMPLES)] * len(steady),
        "tokens": [total + PROMPT * SAMPLES for total in lengths],
        "lengths": lengths,
        "lengths_known": [float(SAMPLES)] * len(steady),
        "lag": [float(SAMPLES)] * len(steady),
        "lag_known": [float(SAMPLES)] * len(steady),
        "steps": [1.0] * len(steady),
        "step_s": [step.seconds for step in steady],
        "syncs": [1.0] * len(steady),
        "sync_s": sync,
        "validations": [float(step.validation_s > 0) for step in steady],
        "checkpoints": [0.0] * len(steady),
        "trainer/bubble.wait_samples": wait,
        "trainer/train.old_log_prob": [step.phases["old_log_prob"] for step in steady],
        "trainer/train.update_actor": [step.phases["update_actor"] for step in steady],
        "trainer/weight_sync": sync,
        "trainer/validate": [step.validation_s for step in steady],
        "rollouter/generate": [2 * waited for waited in wait],
        "rollouter/bubble.staleness_quota": [b - w for b, w in zip(busy, wait, strict=True)],
    }
    return Observation(
        source="trace",
        run_id=f"run{seed}",
        recorded_ns=EPOCH_NS + seed * 3600 * S,
        identity={"mode": "fully_async"},
        devices={"trainer": 1, "rollouter": 1},
        windows={name: tuple(column) for name, column in columns.items()},
        scalars={"recording_overhead": Scalar(0.004, "share", "lower")},
    )


TOPOLOGY = rlinsight.Topology(
    devices=[
        rlinsight.Device("n0/0", node="n0", index=0, kind="cpu", pool="trainer"),
        rlinsight.Device("n0/1", node="n0", index=1, kind="cpu", pool="rollout"),
    ],
    lanes=[
        rlinsight.Lane("trainer", role="trainer", devices=["n0/0"]),
        rlinsight.Lane("rollouter", role="rollouter", devices=["n0/1"]),
        rlinsight.Lane(
            "replica0", role="replica", devices=["n0/1"], engine_kind="standalone", capacity=8
        ),
    ],
)


def write(path: Path, kind: Kind, seed: int, **header: object) -> Path:
    """Write a run as a trace folder and return it."""
    at = EPOCH_NS + seed * 3600 * S
    with rlinsight.TraceWriter(
        path, topology=TOPOLOGY, run_id=f"run{seed}", **{"mode": "fully_async", **header}
    ) as writer:
        for lane in ("trainer", "replica0"):
            writer.marker("param_sync", lane=lane, param_version=0, ts_ns=at)
        for number, step in enumerate(steps(kind, seed), start=1):
            at = _write_step(writer, number, step, at)
    return path


def _write_step(writer: rlinsight.TraceWriter, number: int, step: Step, at: int) -> int:
    start, ends = at, {}
    for name, seconds in step.phases.items():
        ends[name] = at + round(seconds * S)
        writer.span(name, lane="trainer", start_ns=at, end_ns=ends[name], step=number)
        at = ends[name]
    writer.span("step", lane="trainer", start_ns=start, end_ns=at, step=number)
    writer.metric("timing_s/update_actor", step.phases["update_actor"], step=number, ts_ns=at)
    generated = start + round(2 * step.phases["wait_samples"] * S)
    taken = ends["wait_samples"]
    for i, tokens in enumerate(step.responses):
        uid = f"s{number}-{i}"
        writer.request(
            request_id=f"r{number}-{i}", lane="replica0", submit_ns=start, end_ns=generated,
            sample_uid=uid, engine_kind="standalone", prompt_tokens=PROMPT, response_tokens=tokens,
            version_start=number - 1, version_end=number - 1, finish="stop", validate=False,
        )  # fmt: skip
        writer.sample(
            sample_uid=uid, fate="trained", produced_ns=taken - 1, consumed_ns=taken,
            prompt_tokens=PROMPT, response_tokens=tokens, version_start=max(0, number - 2),
            version_end=number - 1, trained_version=number - 1, trained_step=number,
        )  # fmt: skip
    end = at + round(step.validation_s * S)
    if step.validation_s:
        writer.span("validate", lane="trainer", start_ns=at, end_ns=end, step=number)
    writer.span("paused", lane="rollouter", start_ns=generated, end_ns=end,
                attrs={"reason": "staleness_quota"})  # fmt: skip
    for lane in ("trainer", "replica0"):
        writer.marker("param_sync", lane=lane, param_version=number, ts_ns=end)
    return end
