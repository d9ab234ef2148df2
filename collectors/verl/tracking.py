"""Everything that verl logs, under verl's own keys and with the step verl gave.

The step is verl's: the global step of a v1 trainer, the parameter version of the fully
asynchronous one (whose spans count updates, so the two are not the same number). Durations of a
run on emulated devices are brought to its time (see `real_time`).
"""

from __future__ import annotations

import numbers
from typing import Any

from rlinsight.collectors.verl.hooks import Call, Hook
from rlinsight.collectors.verl.real_time import in_run_time


def _log_enter(call: Call) -> None:
    step = call.arg(1, "step")
    step = None if step is None else int(step)
    for key, value in call.arg(0, "data", {}).items():
        number = as_number(value)
        number = None if number is None else in_run_time(str(key), number)
        if number is not None:
            call.rec.metric(str(key), number, step=step, ts_ns=call.start_ns)


def as_number(value: Any) -> float | None:
    """Return a metric as a float, None for text, lists and other values that are no number.

    Not-a-number and infinities are kept: they are what the framework reported.
    """
    if isinstance(value, numbers.Real):
        return float(value)
    if getattr(value, "size", None) == 1 or _elements(value) == 1:
        item = value.item()
        return float(item) if isinstance(item, numbers.Real) else None
    return None


def _elements(value: Any) -> int | None:
    count = getattr(value, "numel", None)
    return int(count()) if callable(count) else None


HOOKS = (
    Hook(
        name="tracking.log",
        module="verl.utils.tracking",
        target="Tracking.log",
        records="every number that verl logs, with its step, as a metrics row",
        enter=_log_enter,
        needs=("data", "step"),
    ),
)
