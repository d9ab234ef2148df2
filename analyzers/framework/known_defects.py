"""All defects of the framework that a run shows, in one list."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.framework.defects import (
    Defect,
    logged,
    lost_last_updates,
    shifted_rows,
    sums_called_max,
)
from rlinsight.analyzers.framework.figures_out_of_range import (
    constant_values,
    older_than_run,
    ratios_outside_unit,
)
from rlinsight.analyzers.framework.idle_figures import lost_resumes, one_pause_only
from rlinsight.analyzers.framework.polls import poll_period
from rlinsight.trace.topology import Topology

#: Waits of verl's trainers that may end at a poll.
_WAITS = ("timing_s/gen", "timing_s/switch_wait")


def known_defects(
    *,
    metrics: pl.DataFrame,
    spans: pl.DataFrame,
    markers: pl.DataFrame,
    topology: Topology,
    started_ns: int | None = None,
    ended: bool = True,
) -> tuple[Defect, ...]:
    """Return every known defect of verl 0.9.1 that the whole run shows.

    `started_ns` is the start of the run, None where it is unknown; metrics count as lost only
    in a run that has `ended`.
    """
    single = (
        shifted_rows(metrics, spans),
        lost_last_updates(metrics, spans) if ended else None,
        one_pause_only(metrics, spans, topology),
        lost_resumes(spans, markers, topology),
    )
    return (
        *(defect for defect in single if defect is not None),
        *sums_called_max(metrics),
        *ratios_outside_unit(metrics),
        *(older_than_run(metrics, started_ns) if started_ns is not None else ()),
        *constant_values(metrics),
        *polled_waits(metrics),
    )


def polled_waits(metrics: pl.DataFrame) -> tuple[Defect, ...]:
    """Return the logged waits that are multiples of a poll interval.

    Worked example: `timing_s/gen` of 4.016, 2.011, 2.012 and 2.014 s: the v1 replay buffer
    looks every 2 s.
    """
    found = []
    for key in _WAITS:
        waits = logged(metrics, key)
        poll = poll_period(waits["value"].to_list())
        if poll is None:
            continue
        told = (
            f"`{key}` is a multiple of {poll.period_s:g} s plus {poll.offset_s:.3f} s in "
            f"{poll.waits} waits: it ends at a poll ({poll.what})"
        )
        evidence: dict[str, float | str] = {
            "period_s": poll.period_s,
            "waits": poll.waits,
            "offset_s": poll.offset_s,
            "mean_cost_s": poll.mean_cost_s,
        }
        found.append(Defect("poll_quantised", key, told, tuple(waits["step"]), evidence))
    return tuple(found)
