"""A discrete-event model of verl's four modes, calibrated from one recorded run.

    calibration = Calibration.from_trace(rlinsight.open("trace/"))
    simulate(calibration)                                            # the run as it was
    predict_change(calibration, {"staleness_threshold": 0.5})        # what a change would do

Readers who want to know how verl schedules start with `fully_async.py` and `rollouter.py`, or
with `v1.py`, `replay.py` and `separate_async.py`. docs/simulator.md says what is modelled.
"""

from __future__ import annotations

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.predict import Effect, Prediction, predict_change, simulate
from rlinsight.analyzers.simulate.sweep import Point, Sweep, sweep

__all__ = [
    "Calibration", "Effect", "Knobs", "Point", "Prediction", "Sweep", "predict_change",
    "simulate", "sweep",
]  # fmt: skip
