"""What-if: the knobs of a run as sliders, and the simulator's answer to where they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rlinsight.analyzers.advise import Advice, Case, advise
from rlinsight.analyzers.simulate import Calibration, Effect, Sweep, predict_change, sweep
from rlinsight.analyzers.simulate.overrides import knobs_of_mode
from rlinsight.analyzers.simulate.size import PAGE_STEPS
from rlinsight.errors import RlinsightError, TraceError
from rlinsight.webapp.text import shortened

if TYPE_CHECKING:
    from rlinsight.webapp.store import Run

#: Characters of a value that is not taken.
_SHOWN: Final = 40

Value = int | float | bool
Range = Callable[[Any], tuple[float, float, float]]


def _counts(now: int) -> tuple[float, float, float]:
    return 1, max(8, 4 * now), 1


def _around(now: int) -> tuple[float, float, float]:
    step = max(1, now // 8)
    return step, max(4 * now, step), step


def _share(most: float, step: float) -> Range:
    return lambda now: (0.0, max(most, now), step)


@dataclass(frozen=True)
class Knob:
    """A knob of the simulator: its label, its unit, and (lowest, highest, step) around `now`.

    One without a range is a switch.
    """

    name: str
    label: str
    unit: str = ""
    range: Range | None = None


_KNOBS: Final = (
    Knob("trainer_devices", "Trainer devices", "", _counts),
    Knob("rollout_replicas", "Standalone replicas", "", _counts),
    Knob("staleness_threshold", "Staleness threshold", "of a sync cycle", _share(2.0, 0.1)),
    Knob("sync_step", "Steps per weight sync", "", _counts),
    Knob("max_off_policy", "Oldest sample", "versions", lambda now: (1, max(16, now), 1)),
    Knob("concurrent_samples", "Samples in flight per replica", "", _around),
    Knob("max_num_seqs", "Sequences at once per replica", "", _around),
    Knob("mini_batch", "Mini-batch", "prompts", _around),
    Knob("train_batch", "Train batch", "prompts", _around),
    Knob("token_budget", "Token budget per device", "tokens", _around),
    Knob("max_response_length", "Response cap", "tokens", _around),
    Knob("validation_interval", "Validation every", "steps", lambda now: (1, max(20, now), 1)),
    Knob("warm_up_batches", "Warm-up batches", "", lambda now: (0, max(8, now), 1)),
    Knob("length_scale", "Lengths, times", "", lambda _: (0.25, 2.0, 0.05)),
    Knob("length_tail", "Tail of the lengths, times", "", lambda _: (0.0, 2.0, 0.1)),
    Knob("partial_rollout", "Partial rollout"),
    Knob("trainer_validates", "Trainer validates"),
    Knob("hybrid_switch", "Hybrid switch"),
)

#: What a Pareto plot varies, the first two that the mode has.
_VARIED: Final[tuple[str, ...]] = (
    "rollout_replicas",
    "staleness_threshold",
    "sync_step",
    "max_num_seqs",
)


@dataclass(frozen=True)
class Slider:
    """A knob as it stands: its value in the run, the value asked for, and its range."""

    knob: Knob
    now: Value
    value: Value
    bounds: tuple[float, float, float] | None


def calibrated(run: Run) -> Calibration:
    """Return the calibration of a run, made once. Raises RlinsightError."""
    return run.once("calibration", lambda: Calibration.from_report(run.trace, run.report))


def sliders(calibration: Calibration, query: Mapping[str, str]) -> list[Slider]:
    """Return the knobs that the run's mode has and that are set, where the query puts them."""
    present = {name: value for name, value, _ in knobs_of_mode(calibration.knobs)}
    if calibration.knobs.mode == "separate_async":
        del present["train_batch"]  # it follows from the mini-batch and the steps per sync
    return [
        _slider(knob, present[knob.name], query.get(knob.name))
        for knob in _KNOBS
        if present.get(knob.name) is not None
    ]


def _slider(knob: Knob, now: Any, wanted: str | None) -> Slider:
    if knob.range is None:
        value = {"on": True, "off": False}.get(wanted or "", bool(now))
        return Slider(knob, bool(now), value, None)
    bounds = knob.range(now)
    return Slider(knob, now, _within(wanted, now, bounds), bounds)


def _within(wanted: str | None, now: Value, bounds: tuple[float, float, float]) -> Value:
    try:
        value = float(wanted or "")
    except ValueError:
        return now
    low, high, _ = bounds
    if not low <= value <= high:
        return now
    return value if isinstance(now, float) else round(value)


def not_taken(found: list[Slider], query: Mapping[str, str]) -> list[str]:
    """Return a sentence for each knob in the query whose value it cannot have."""
    said = []
    for slider in found:
        name, wanted = slider.knob.name, query.get(slider.knob.name)
        if wanted is None or _is_taken(slider, wanted):
            continue
        expected = "on or off"
        if slider.bounds is not None:
            expected = f"{slider.bounds[0]:g} to {slider.bounds[1]:g}"
        shown = shortened(wanted, _SHOWN)
        said.append(f"Left as it was: expected `{name}` of {expected}, found `{shown}`.")
    return said


def _is_taken(slider: Slider, wanted: str) -> bool:
    if slider.bounds is None:
        return wanted in ("on", "off")
    try:
        return slider.bounds[0] <= float(wanted) <= slider.bounds[1]
    except ValueError:
        return False


def changes(found: list[Slider]) -> dict[str, Value]:
    """Return the knobs that are not where the run had them."""
    return {s.knob.name: s.value for s in found if s.value != s.now}


def effect(calibration: Calibration, wanted: Mapping[str, Value]) -> Effect:
    """Return the predicted effect of the changes. Raises RlinsightError."""
    try:
        return predict_change(calibration, wanted, limit=PAGE_STEPS)
    except ArithmeticError as error:
        # A run of a few moments has costs of zero, by which the model divides.
        raise TraceError(f"too little was recorded to simulate this run ({error})") from error


def overrides(run: Run, wanted: Mapping[str, Value]) -> list[str]:
    """Return the exact overrides that make these changes; knobs of the workload have none."""
    return list(_case(run).overrides(wanted)) if wanted else []


def advice(run: Run) -> Advice:
    """Return the findings of all rules, made once. Raises RlinsightError."""
    return run.once("advice", lambda: advise(_case(run)))


def _case(run: Run) -> Case:
    try:
        calibration = calibrated(run)
    except RlinsightError:
        calibration = None
    return Case(run.report, run.trace.manifest.config, calibration, topology=run.trace.topology)


def pareto(run: Run) -> Sweep:
    """Return a sweep over two knobs of the run, made once. Raises RlinsightError."""
    return run.once("pareto", lambda: _pareto(calibrated(run)))


def _pareto(calibration: Calibration) -> Sweep:
    found = {slider.knob.name: slider for slider in sliders(calibration, {})}
    varied = [name for name in _VARIED if name in found][:2]
    values: dict[str, list[Value]] = {name: _spread(found[name]) for name in varied}
    return sweep(calibration, values, seeds=(0, 1), versions=8, processes=1)


def _spread(slider: Slider) -> list[Value]:
    assert slider.bounds is not None
    low, high, _ = slider.bounds
    if isinstance(slider.now, float):
        return sorted({0.0, 0.1, 0.3, 0.5, 0.7, 1.0, slider.now})
    now = int(slider.now)
    return sorted({v for v in (now // 2, now, 2 * now, 4 * now) if low <= v <= high})
