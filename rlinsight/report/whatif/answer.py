"""What `rlinsight whatif` answers: everything that its renderers need, in one object."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.predict import Effect, Prediction
from rlinsight.analyzers.simulate.reproduce import Compared
from rlinsight.analyzers.simulate.sweep import Sweep

WHATIF_SCHEMA_VERSION: Final = 1

Objective = Literal["per-device", "wall-clock"]

#: The figure that each objective is about.
FIGURE_OF: Final[dict[Objective, str]] = {
    "per-device": "tokens_per_s_per_device",
    "wall-clock": "tokens_per_s",
}


@dataclass(frozen=True)
class Answer:
    """A trace's calibration, how well it reproduces the run, and what was asked of it.

    `objective` is None where nobody chose one: then both are shown. `compared` is empty for a
    calibration without its trace. `overrides` are the exact overrides of verl that make the
    change, `unmapped` the changes that no single override makes.
    """

    trace: str
    calibration: Calibration
    prediction: Prediction
    compared: tuple[Compared, ...]
    objective: Objective | None
    effect: Effect | None = None
    sweep: Sweep | None = None
    overrides: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `rlinsight whatif --json`; see docs/simulator.md."""
        calibration = self.calibration.to_dict()
        for lengths in ("lengths", "validation_lengths"):
            calibration[lengths] = {
                "cap": calibration[lengths]["cap"],
                "mean": getattr(self.calibration, lengths).mean,
                "groups": len(calibration[lengths]["groups"]),
            }
        del calibration["training"]["residuals"]
        return {
            "schema_version": WHATIF_SCHEMA_VERSION,
            "trace": self.trace,
            "calibration": calibration,
            "prediction": self.prediction.to_dict(),
            "compared": [asdict(row) for row in self.compared],
            "objective": self.objective,
            "effect": self.effect.to_dict() if self.effect else None,
            "sweep": self.sweep.to_dict() if self.sweep else None,
            "overrides": list(self.overrides),
            "unmapped": list(self.unmapped),
        }


def disagree(effect: Effect) -> bool:
    """Whether the change helps one objective and hurts the other."""
    device, wall = effect.tokens_per_s_per_device.value, effect.tokens_per_s.value
    return device is not None and wall is not None and device * wall < 0
