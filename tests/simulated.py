"""Jobs for the simulator that can be followed by hand: every response has a known length."""

from __future__ import annotations

from collections.abc import Sequence

from rlinsight.analyzers.simulate import Calibration, Knobs
from rlinsight.analyzers.simulate.calibration import Costs, Decode, Training
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.predict import simulate_run
from rlinsight.analyzers.simulate.world import World


def job(
    mode: str = "fully_async",
    *,
    lengths: Sequence[int] = (4,),
    validation: Sequence[int] = (2,),
    token_s: float = 1.0,
    per_running_s: float = 0.0,
    train_s: float = 3.0,
    costs: dict[str, float] | None = None,
    **knobs,
) -> Calibration:
    """A job in which a token takes `token_s`, an update `train_s`, and the rest only `costs`."""
    split = mode in ("separate_async", "fully_async")
    settings = {
        "trainer_devices": 1, "rollout_devices": 1 if split else 0, "group_size": 1,
        "mini_batch": 2, "train_batch": 2, "max_num_seqs": 64, "max_response_length": 1000,
    }  # fmt: skip
    return Calibration(
        knobs=Knobs(mode=mode, **{**settings, **knobs}),
        lengths=LengthModel(tuple((length,) for length in lengths), 1000),
        validation_lengths=LengthModel(tuple((length,) for length in validation), 1000),
        prompt_tokens=0.0,
        decode=Decode(token_s, per_running_s, 0.0, max_running=64.0),
        training=Training(train_s, 0.0),
        costs=Costs(**{"sync_s": 1.0, "validation_requests": 1, **(costs or {})}),
    )


def world(mode: str = "fully_async", **settings) -> World:
    calibration = job(mode, **settings)
    return World(calibration, calibration.knobs, seed=0)


def marks(calibration: Calibration, versions: int = 4) -> list[float]:
    """When each version of a run goes live, in seconds."""
    account = simulate_run(calibration, calibration.knobs, 0, versions)
    return [mark.now for mark in account.marks]
