"""What a new call makes of the log that an earlier one left.

A call that ended by itself said what was wrong. Calling again says that it was mended:

* a smoke run or baseline that failed is made again, and so is the kept run where it showed what is
  to be mended first. Where the runs that it was measured beside showed that, too, it is the new
  baseline: what was tried beside them decides nothing any more;
* a change that preflight refused is asked about again: disks get empty, ports free.

Limits that let more be tried than those before begin the count of fruitless experiments anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlinsight.runs.tune.findings import is_refusal, to_mend
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Log, Record


def taken_up(log: Log, limits: Limits) -> Log:
    """Return the log as a new call goes on from it."""
    # One that was killed never said what was wrong.
    records = log.records if log.stopped is None else _repeated(log, limits)
    widened = log.limits is not None and limits.wider_than(log.limits)
    return replace(
        log,
        records=records,
        skipped=tuple(one for one in log.skipped if not is_refusal(one)),
        stopped=None,
        limits=limits,
        patience_from=len(records) if widened else log.patience_from,
    )


def _repeated(log: Log, limits: Limits) -> tuple[Record, ...]:
    again = {one.number for one in log.records if one.decision == "failed"}
    again |= set(_defective(log, limits))
    return tuple(
        replace(one, decision="repeated") if one.number in again else one for one in log.records
    )


def _defective(log: Log, limits: Limits) -> Iterator[int]:
    """Yield the kept runs, the last first, up to one without a defect that was to be mended.

    A defect that a setting mends is not mended by making the same run again.
    """
    for one in reversed(log.records):
        if one.decision != "kept":
            continue
        defect = to_mend(one, limits)
        if defect is None or defect.overrides:
            return
        yield one.number
