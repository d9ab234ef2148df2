"""What a new call makes of the log that an earlier one left.

A call that ended by itself said what was wrong. Calling again says that it was mended:

* a smoke run or baseline that failed is made again, and so is the kept run where it showed what is
  to be mended first;
* a change that preflight refused is asked about again: disks get empty, ports free.

Limits that let more be tried than those before begin the count of fruitless experiments anew.
"""

from __future__ import annotations

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
    kept = log.kept
    is_defective = kept is not None and to_mend(kept, limits) is not None
    return tuple(
        replace(one, decision="repeated")
        if one.decision == "failed" or (is_defective and one is kept)
        else one
        for one in log.records
    )
