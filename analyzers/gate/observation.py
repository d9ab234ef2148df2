"""What the gate keeps of a run: its steady windows in numbers, and what it can be compared with.

A baseline is an observation on disk, so it holds sums per window rather than finished figures:
a metric that is added later can be worked out for the runs that were accepted before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal

OBSERVATION_SCHEMA_VERSION: Final = 1

Better = Literal["higher", "lower", "either"]
Source = Literal["trace", "figures"]
Column = tuple[float | None, ...]


@dataclass(frozen=True)
class Scalar:
    """One number per run, `gates` where it may fail a build."""

    value: float | None
    unit: str
    better: Better
    gates: bool = True


@dataclass(frozen=True)
class Observation:
    """One run, ready to be compared.

    `windows` are columns over the steady windows, each value a sum over its window: `seconds`,
    `tokens`, `samples`, `lengths` (response tokens) of `lengths_known` samples, `steps` of
    `step_s` seconds, `syncs` of `sync_s` seconds, `lag` (versions) of `lag_known` samples, and
    `<pool>/<state>` in device-seconds. `validations` and `checkpoints` are no sums but the share
    of a window's version windows that held one: 0 or 1 where it is a single one. `logged` are
    columns over the training steps of the same window. None is unknown or not logged; a logged
    value that is no number is counted in `not_finite`. `devices` is per pool. `identity` is what
    must agree for a comparison; `doubts` lower the confidence.
    """

    source: Source
    run_id: str | None
    recorded_ns: int | None
    identity: Mapping[str, str]
    cut: str = ""
    devices: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, Column] = field(default_factory=dict)
    logged: Mapping[str, Column] = field(default_factory=dict)
    not_finite: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of steady windows."""
        return len(self.windows.get("seconds", ()))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, numbers to six digits."""
        return {
            "schema_version": OBSERVATION_SCHEMA_VERSION,
            "source": self.source,
            "run_id": self.run_id,
            "recorded_ns": self.recorded_ns,
            "identity": dict(sorted(self.identity.items())),
            "cut": self.cut,
            "devices": dict(self.devices),
            "windows": _rounded(self.windows),
            "logged": _rounded(self.logged),
            "not_finite": dict(self.not_finite),
            "scalars": {
                name: {**vars(one), "value": _six(one.value)} for name, one in self.scalars.items()
            },
            "doubts": list(self.doubts),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Observation:
        """Read the JSON form. Raises ValueError, in one sentence, when it cannot be used."""
        version = data.get("schema_version")
        if version != OBSERVATION_SCHEMA_VERSION:
            raise ValueError(
                f"expected schema_version {OBSERVATION_SCHEMA_VERSION}, found {version!r}"
            )
        try:
            return cls(
                source=data["source"],
                run_id=data["run_id"],
                recorded_ns=data["recorded_ns"],
                identity={str(k): str(v) for k, v in data["identity"].items()},
                cut=str(data.get("cut", "")),
                devices={k: int(v) for k, v in data["devices"].items()},
                windows=_columns(data["windows"]),
                logged=_columns(data["logged"]),
                not_finite={k: int(v) for k, v in data["not_finite"].items()},
                scalars={k: Scalar(**v) for k, v in data["scalars"].items()},
                doubts=tuple(map(str, data.get("doubts", ()))),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"damaged: {type(error).__name__} {error}") from error


def _rounded(columns: Mapping[str, Sequence[float | None]]) -> dict[str, list[float | None]]:
    return {name: [_six(value) for value in column] for name, column in columns.items()}


def _six(value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _columns(data: Mapping[str, Any]) -> dict[str, Column]:
    columns = {str(name): tuple(_number(value) for value in data[name]) for name in data}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns of unequal length")
    return columns


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
