"""What `rlinsight whatif` does with its arguments: from text to an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlinsight.cli.whatif_settings import settings
from rlinsight.errors import RlinsightError

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.analyzers.simulate import Calibration, Prediction
    from rlinsight.analyzers.simulate.reproduce import Compared
    from rlinsight.report.whatif.answer import Answer, Objective

KNOBS_SCHEMA_VERSION: Final = 1


def loaded(trace: str) -> tuple[Calibration, Report | None]:
    """Return the calibration of a trace with its report, or a saved one without."""
    from rlinsight.analyzers.simulate import Calibration

    if trace.endswith(".json") and not Path(trace).is_dir():
        return _saved(trace), None
    import rlinsight

    opened = rlinsight.open(trace)
    report = opened.analyze()
    return Calibration.from_report(opened, report), report


def _saved(path: str) -> Calibration:
    from rlinsight.analyzers.simulate import Calibration

    expected = f"expected a calibration that `whatif --save` wrote in `{path}`"
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RlinsightError(f"{expected}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise RlinsightError(f"{expected}, found no JSON: {error}") from error
    if not isinstance(document, dict) or not {"knobs", "lengths", "decode"} <= set(document):
        raise RlinsightError(f"{expected}, found JSON that is no calibration at all")
    try:
        return Calibration.from_dict(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RlinsightError(f"{expected}, found one that is damaged: {error}") from error


def answer(
    trace: str,
    calibration: Calibration,
    report: Report | None,
    *,
    changes: Sequence[str],
    sweeps: Sequence[str],
    objective: Objective | None,
    seeds: int,
    versions: int | None,
) -> Answer:
    """Return the answer to `KNOB=VALUE` changes and `KNOB=A,B,C` sweeps."""
    from rlinsight.analyzers.simulate import predict_change, sweep
    from rlinsight.analyzers.simulate.overrides import (
        knob_name,
        mode_after,
        override,
        train_batch_override,
    )
    from rlinsight.report.whatif.answer import Answer

    asked = settings(calibration.knobs.mode, changes, sweeps)
    fixed, varied = asked.fixed, asked.varied
    runs = range(seeds)
    prediction, compared = _reproduced(calibration, report, runs, versions)
    mode = mode_after(calibration.knobs.mode, fixed)
    names = {key: knob_name(mode, key) for key in fixed}
    commands = {key: override(mode, names[key], value) for key, value in fixed.items()}
    follows = train_batch_override(calibration.knobs.changed(fixed), names.values())
    return Answer(
        trace=Path(trace).name,
        calibration=calibration,
        prediction=prediction,
        compared=compared,
        objective=objective,
        effect=predict_change(calibration, fixed, seeds=runs, versions=versions) if fixed else None,
        sweep=sweep(calibration, varied, fixed=fixed, seeds=runs, versions=versions)
        if varied
        else None,
        overrides=(*(text for text in commands.values() if text is not None), *follows),
        unmapped=tuple(key for key, text in commands.items() if text is None),
    )


def listed_knobs(calibration: Calibration) -> str:
    """Return the knobs of the run's mode with their present values and overrides."""
    from rlinsight.analyzers.simulate.overrides import knobs_of_mode
    from rlinsight.report.whatif.sections import value_text

    rows = knobs_of_mode(calibration.knobs)
    width = max(len(name) for name, _, _ in rows)
    return "\n".join(
        f"{name:<{width}}  {value_text(value):<10}  {key}" for name, value, key in rows
    )


def knobs_document(trace: str, calibration: Calibration) -> dict[str, Any]:
    """Return the JSON form of the same."""
    from rlinsight.analyzers.simulate.overrides import knobs_of_mode

    return {
        "schema_version": KNOBS_SCHEMA_VERSION,
        "trace": Path(trace).name,
        "mode": calibration.knobs.mode,
        "knobs": [
            {"knob": name, "value": value, "sets": key}
            for name, value, key in knobs_of_mode(calibration.knobs)
        ],
    }


def _reproduced(
    calibration: Calibration, report: Report | None, seeds: range, versions: int | None
) -> tuple[Prediction, tuple[Compared, ...]]:
    """Return the run as it was, and beside the recorded figures.

    These are compared over the recorded versions, however many are asked for.
    """
    from rlinsight.analyzers.simulate import simulate
    from rlinsight.analyzers.simulate.reproduce import reproduce

    if report is None or calibration.source == "metrics":
        return simulate(calibration, seeds=seeds, versions=versions), ()
    prediction, compared = reproduce(calibration, report, seeds=seeds)
    if versions is not None:
        prediction = simulate(calibration, seeds=seeds, versions=versions)
    return prediction, compared
