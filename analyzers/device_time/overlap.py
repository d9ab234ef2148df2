"""Whether the two sides really work at the same time, and how far the rollout runs ahead."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rlinsight.analyzers.device_time.intervals import intersect, level, total_ns, union
from rlinsight.analyzers.device_time.states import TRAINING

Window = tuple[int, int]

#: With less than this share of the smaller side's work done beside the other's, the sides take
#: turns: the run is not asynchronous.
ALTERNATING = 0.1


@dataclass(frozen=True)
class Overlap:
    """Shares of the window in which some device trains, some generates, and both at once.

    `hidden_share` is the overlap as a share of the smaller side: 1 means that the smaller
    side costs no wall time of its own. `alternating`: both sides work, hardly ever together
    (`hidden_share` below 0.1; a small overlap alone may only mean that training is short).
    """

    overlap_ratio: float
    training_ratio: float
    generating_ratio: float
    hidden_share: float | None
    alternating: bool


@dataclass(frozen=True)
class RunAhead:
    """Finished trajectories that wait for the trainer, over time, also in mini-batches.

    `mini_batch_samples` is the median number of trajectories trained in one step.
    """

    mean_samples: float
    max_samples: int
    mini_batch_samples: float | None
    mean_mini_batches: float | None
    max_mini_batches: float | None


@dataclass(frozen=True)
class OutsideSteps:
    """Wall time of the driver in no step, in seconds; `activities` is what it did there."""

    wall_s: float
    in_steps_s: float
    outside_s: float
    outside_ratio: float
    longest_s: float
    activities: dict[str, float]


def overlap(segments: pl.DataFrame, window: Window) -> Overlap | None:
    """Return the overlap of training and generation from the ledger's `segments`.

    Overlap ratio = wall time in which at least one device trains and at least one generates
    / wall time. What counts is what devices did, not their pool: a hybrid replica generates
    on trainer devices. None for an empty window.

    Worked example: train 0-6, generate 4-10, window 0-10: overlap 0.2, hidden 2/6.
    """
    width = window[1] - window[0]
    if width <= 0:
        return None
    training = union(segments.filter(pl.col("state").is_in(TRAINING)))
    generating = union(segments.filter(pl.col("state") == "generate"))
    sides = [total_ns(side) for side in (training, generating)]
    both = total_ns(intersect(training, generating))
    smaller = min(sides)
    return Overlap(
        overlap_ratio=both / width,
        training_ratio=sides[0] / width,
        generating_ratio=sides[1] / width,
        hidden_share=both / smaller if smaller else None,
        alternating=both < ALTERNATING * smaller,
    )


def run_ahead(samples: pl.DataFrame, window: Window) -> RunAhead | None:
    """Return how many finished trajectories waited for the trainer over `window` (ns).

    Counted are trajectories whose production is known and whose fate is `trained` or
    `unconsumed`; one that was thrown away has no recorded end of its waiting. None where no
    production time is known.

    Worked example: two samples produced at 0 and consumed at 10, two produced at 5 and
    consumed at 20, mini-batches of 2, window 0-20: 2 x 10 + 2 x 15 = 50 sample-seconds,
    2.5 samples or 1.25 mini-batches on average, at most 4.
    """
    start, end = window
    waited = samples.filter(
        pl.col("produced_ns").is_not_null() & pl.col("fate").is_in(["trained", "unconsumed"])
    ).select(
        start_ns=pl.col("produced_ns").clip(lower_bound=start),
        end_ns=pl.col("consumed_ns").fill_null(end).clip(upper_bound=end),
    )
    waited = waited.filter(pl.col("start_ns") < pl.col("end_ns"))
    if start >= end or samples["produced_ns"].null_count() == len(samples):
        return None
    mean = total_ns(waited) / (end - start)
    most = level(waited)["count"].max()
    peak = most if isinstance(most, int) else 0
    batch = mini_batch_samples(samples)
    return RunAhead(
        mean_samples=mean,
        max_samples=peak,
        mini_batch_samples=batch,
        mean_mini_batches=mean / batch if batch else None,
        max_mini_batches=peak / batch if batch else None,
    )


def mini_batch_samples(samples: pl.DataFrame) -> float | None:
    """Return the median number of trajectories trained in one step, None if none is known."""
    trained = samples.filter((pl.col("fate") == "trained") & pl.col("trained_step").is_not_null())
    median = trained.group_by("trained_step").len()["len"].median()
    return float(median) if isinstance(median, (int, float)) else None


def outside_steps(spans: pl.DataFrame, window: Window) -> OutsideSteps | None:
    """Return the wall time of `window` in no `step` span of the driver; None without any step.

    `activities` are the seconds that other spans of the driver cover outside; they may
    overlap, and what none covers is in none. An open step reaches to the window's end.
    """
    start, end = window
    mine = spans.filter(pl.col("lane") == "trainer").select(
        "activity",
        start_ns=pl.col("start_ns").clip(lower_bound=start),
        end_ns=pl.col("end_ns").fill_null(end).clip(upper_bound=end),
    )
    if not (mine["activity"] == "step").any():
        return None
    steps = union(mine.filter(pl.col("activity") == "step").select("start_ns", "end_ns"))
    gaps = _gaps(steps, window)
    # The stages of a sync are within its span.
    activities = mine["activity"].cast(pl.String).unique().sort().to_list()
    others = [a for a in activities if a != "step" and not a.startswith("other:weight_sync.")]
    covered = {
        activity: total_ns(intersect(mine.filter(pl.col("activity") == activity), gaps)) / 1e9
        for activity in others
    }
    outside, longest = total_ns(gaps), (gaps["end_ns"] - gaps["start_ns"]).max()
    return OutsideSteps(
        wall_s=(end - start) / 1e9,
        in_steps_s=total_ns(steps) / 1e9,
        outside_s=outside / 1e9,
        outside_ratio=outside / (end - start),
        longest_s=longest / 1e9 if isinstance(longest, int) else 0.0,
        activities={name: seconds for name, seconds in covered.items() if seconds},
    )


def _gaps(covered: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return what disjoint sorted intervals within `window` leave of it."""
    starts = pl.concat([pl.Series([window[0]], dtype=pl.Int64), covered["end_ns"]])
    ends = pl.concat([covered["start_ns"], pl.Series([window[1]], dtype=pl.Int64)])
    gaps = pl.DataFrame({"start_ns": starts, "end_ns": ends})
    return gaps.filter(pl.col("start_ns") < pl.col("end_ns"))
