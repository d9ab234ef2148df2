"""How fast a run is simulated: one large run on one core, a sweep on all, and a slider.

    python benchmarks/simulate.py [--versions 200] [--json]

The large run is fully_async with 64 replicas and 512 prompts of 16 responses a version; the
slider is the simulation of the recorded sample run over all its seeds, as a web page asks for
it while somebody drags.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from harness import Figure, report

import rlinsight
from rlinsight.analyzers.simulate import Calibration, Knobs, simulate, sweep
from rlinsight.analyzers.simulate.calibration import Costs, Decode, Training
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.predict import SEEDS, simulate_run

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "fully_async"
REPEATS = 5


def large(mode: str) -> Calibration:
    """Return a cluster of 64 replicas whose version is 512 prompts of 16 long responses."""
    rng = np.random.default_rng(0)
    drawn = np.clip(rng.lognormal(6.9, 0.8, (1000, 16)), 1, 8192).astype(int)
    lengths = LengthModel(tuple(map(tuple, drawn.tolist())), 8192)
    split = mode in ("separate_async", "fully_async")
    knobs = Knobs(
        mode=mode, trainer_devices=64, rollout_devices=64 if split else 0, group_size=16,
        mini_batch=128, train_batch=512, sync_step=4 if split else 1, max_num_seqs=256,
        staleness_threshold=0.5, max_response_length=8192, hybrid_engine=mode != "separate_async",
    )  # fmt: skip
    return Calibration(
        knobs=knobs, lengths=lengths, validation_lengths=lengths, prompt_tokens=512.0,
        decode=Decode(0.012, 0.00008, 0.1, max_running=256.0),
        training=Training(2.0, 0.00003), costs=Costs(sync_s=8.0, submit_s=0.05, reward_s=0.1),
    )  # fmt: skip


def one_run(mode: str, versions: int) -> float:
    """Return the processor seconds of one simulated run."""
    calibration = large(mode)
    start = time.process_time()
    simulate_run(calibration, calibration.knobs, 0, versions)
    return time.process_time() - start


def slider() -> float:
    """Return the median processor milliseconds of a prediction for the recorded sample run."""
    calibration = Calibration.from_trace(rlinsight.open(SAMPLE))
    taken = []
    for repeat in range(REPEATS):  # other seeds each time: what was simulated is remembered
        seeds = range(len(SEEDS) * repeat, len(SEEDS) * (repeat + 1))
        start = time.process_time()
        simulate(calibration, seeds=seeds)
        taken.append((time.process_time() - start) * 1e3)
    return float(np.median(taken))


def speedup() -> float:
    """Return how much faster a sweep is on all cores than on one; idle cores are needed."""
    calibration = large("fully_async")
    values = {"staleness_threshold": [0.0, 0.1, 0.3, 0.5], "sync_step": [2, 4]}
    taken = []
    for processes in (1, os.cpu_count() or 1):
        start = time.perf_counter()
        sweep(calibration, values, seeds=(0,), versions=20, processes=processes)
        taken.append(time.perf_counter() - start)
    return taken[0] / taken[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    versions = parser.parse_args().versions
    what = f"{versions} versions x 512 prompts x 16 responses, 64 replicas"
    figures = [
        Figure(f"{mode}, {what}", one_run(mode, versions), "s", at_most=10)
        for mode in ("fully_async", "separate_async", "colocate_async", "sync")
    ]
    figures += [
        Figure("sample run, all seeds", slider(), "ms", at_most=200),
        Figure("sweep on all cores / on one", speedup(), "x"),
    ]
    report("simulation", figures)


if __name__ == "__main__":
    main()
