"""How well each number of a calibration is known, as a section."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.fits import Fit
from rlinsight.report.section import Section
from rlinsight.report.units import count, percent, seconds


def fits(calibration: Calibration) -> Section:
    """Return how well each fitted number is known."""
    rows = tuple(
        (
            fit.name,
            _unit(fit)(fit.value),
            _error(fit),
            _free(fit),
            count(fit.observations),
            fit.verdict,
        )
        for fit in calibration.fits
    )
    shares = [
        f"{name} explains {percent(share)} of the variance of {what}"
        for name, share, what in (
            ("decoding", calibration.decode.r2, "request durations"),
            ("training", calibration.training.r2, "step times"),
        )
        if share is not None
    ]
    note = (
        "No time is negative: where noise would make one so, 0 is used, and what the estimate "
        "would be without that is shown. Each seed draws every number within its error."
    )
    columns = ("fitted", "used", "±", "unconstrained", "seen", "verdict")
    notes = filter(None, ("; ".join(shares), note))
    return Section("How well it fits", columns, rows, ". ".join(notes))


def _error(fit: Fit) -> str:
    return "-" if fit.error is None else _unit(fit)(fit.error)


def _unit(fit: Fit) -> Callable[[float | None], str]:
    return percent if fit.name.endswith("_share") else seconds


def _free(fit: Fit) -> str:
    same = math.isclose(fit.free, fit.value, rel_tol=1e-6)  # but for rounding
    return "the same" if same else _unit(fit)(fit.free)
