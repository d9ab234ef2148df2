"""Where the generated tokens went: trained, lost, or still on their way.

Problem: work is thrown away in places that no metric adds up: samples too old to train,
groups without a signal, trajectories that failed, and attempts that a weight sync aborted.
The account is in response tokens:

    generated = trained + dropped + filtered + aborted + discarded + unconsumed + in flight
                + unassigned + residual

Generated is what the requests of training say. An aborted attempt is not lost if the next
attempt of the same request goes on from it (partial rollout): its prompt is then longer by
the tokens it got. If the next attempt starts over, the tokens are `discarded`. Where prompt
lengths are not recorded, attempts are assumed to be continued and counted as such.
The residual holds what samples carry beyond generation (tool output in the response), or what
was cut from it; it is never spread over the others.

Worked example (marin-community/marin#8936): 6,690,949 generated, 6,536,199 trained, 154,750
discarded: residual 0, wasted 2.31 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from rlinsight.analyzers.staleness import LOST_FATES, cohort

Window = tuple[int, int]

#: Where a sample without a fate of its own is counted.
_UNCONSUMED: Final = "unconsumed"


@dataclass(frozen=True)
class TokenAccount:
    """Response tokens by what became of them; see the module for the identity they obey.

    `source` tells whether `generated_tokens` was counted from requests or is the sum over
    samples, in which case there is nothing to check it against and `residual_tokens` is None.
    `discarded_tokens`: of attempts that were started over. `in_flight_tokens`: of finished
    requests whose trajectory was not complete when the recording ended. `unassigned_tokens`:
    of requests that name no trajectory where others do. `assumed_continued_tokens` (part of
    the others, not a term) are of aborted attempts whose continuation could not be checked.
    """

    source: Literal["requests", "samples"]
    generated_tokens: int
    trained_tokens: int
    dropped_tokens: int
    filtered_tokens: int
    aborted_tokens: int
    unconsumed_tokens: int
    discarded_tokens: int | None
    in_flight_tokens: int | None
    unassigned_tokens: int | None
    residual_tokens: int | None
    assumed_continued_tokens: int | None
    open_requests: int | None
    samples_without_length: int

    @property
    def wasted_tokens(self) -> int:
        """Generated and never to be trained."""
        lost = self.dropped_tokens + self.filtered_tokens + self.aborted_tokens
        return lost + (self.discarded_tokens or 0)

    @property
    def wasted_share(self) -> float | None:
        """Wasted tokens per generated token; None where nothing was generated."""
        return self.wasted_tokens / self.generated_tokens if self.generated_tokens else None


def token_account(
    requests: pl.DataFrame, samples: pl.DataFrame, *, window: Window | None = None
) -> TokenAccount | None:
    """Return the account of the samples produced in `window` and of their requests.

    All requests of a sample are accounted with it, also those before the window; requests
    without a sample count where they ended. Returns None where no token is known.
    """
    born = cohort(samples, requests, window)
    training = requests.filter(pl.col("validate").ne_missing(pl.lit(value=True))).select(
        "request_id", "sample_uid", "submit_ns", "end_ns", "attempt", "finish",
        "prompt_tokens", "response_tokens",
    )  # fmt: skip
    if training["response_tokens"].null_count() == len(training):
        return _from_samples(born, len(training.filter(pl.col("end_ns").is_null())))
    by_sample, loose = _per_sample(_judged(training), samples, born, window)
    linked = by_sample["sample_uid"].is_not_null().any()
    return _from_requests(_fate_tokens(born, by_sample), born, by_sample, loose, linked)


def _judged(requests: pl.DataFrame) -> pl.DataFrame:
    """Split each attempt's tokens into kept, discarded and assumed (kept, but not checked)."""
    repeated = requests["request_id"].is_duplicated()
    single = requests.filter(~repeated).with_columns(fate_of_attempt=pl.lit("kept"))
    chain = requests.filter(repeated).sort("request_id", "attempt", "submit_ns")
    after = pl.col("request_id") == pl.col("request_id").shift(-1)
    grown = pl.col("prompt_tokens").shift(-1) - pl.col("prompt_tokens")
    judged = chain.with_columns(
        fate_of_attempt=pl.when(~after.fill_null(value=False))
        .then(pl.lit("kept"))
        .when(grown.is_null() | pl.col("response_tokens").is_null())
        .then(pl.lit("assumed"))
        .when(grown >= pl.col("response_tokens"))
        .then(pl.lit("kept"))
        .otherwise(pl.lit("discarded"))
    )
    return pl.concat([single, judged])


def _per_sample(
    requests: pl.DataFrame, samples: pl.DataFrame, born: pl.DataFrame, window: Window | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return tokens per sample of `born`, and the requests in `window` that have no sample."""
    tokens = pl.col("response_tokens")
    state = pl.col("fate_of_attempt")
    known = requests.join(_trajectories(samples), on="sample_uid", how="semi")
    loose = requests.join(_trajectories(samples), on="sample_uid", how="anti")
    if window is not None:
        loose = loose.filter(pl.coalesce("end_ns", "submit_ns").is_between(*window))
    mine = known.join(_trajectories(born), on="sample_uid", how="semi")
    by_sample = mine.group_by("sample_uid").agg(
        kept=tokens.filter(state != "discarded").sum(),
        discarded=tokens.filter(state == "discarded").sum(),
        assumed=tokens.filter(state == "assumed").sum(),
        open=pl.col("end_ns").is_null().sum(),
    )
    return by_sample, loose


def _trajectories(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.select(trajectory()).unique()


def trajectory() -> pl.Expr:
    """Return the id that requests name: outputs of one trajectory after the first end in `.n`."""
    return pl.col("sample_uid").str.replace(r"/(\d+)\.\d+$", "/${1}")


def _fate_tokens(born: pl.DataFrame, by_sample: pl.DataFrame) -> dict[str, int]:
    """Return response tokens per fate; a sample of unknown length counts what was generated."""
    lengths = born.select(
        trajectory(), fate=pl.col("fate").fill_null(_UNCONSUMED), own="response_tokens"
    )
    unknown = lengths.filter(pl.col("own").is_null()).unique("sample_uid")
    filled = unknown.join(by_sample, on="sample_uid", how="left").with_columns(own="kept")
    both = pl.concat([lengths.filter(pl.col("own").is_not_null()), filled.select(lengths.columns)])
    sums = both.group_by("fate").agg(pl.col("own").cast(pl.Int64).sum())
    return dict(sums.iter_rows())


def _from_requests(
    fates: dict[str, int],
    born: pl.DataFrame,
    by_sample: pl.DataFrame,
    loose: pl.DataFrame,
    linked: bool,
) -> TokenAccount:
    named = loose.filter(pl.col("sample_uid").is_not_null())
    nameless = loose.filter(pl.col("sample_uid").is_null())
    discarded = _sum(by_sample, "discarded") + _lost(loose)
    generated = _sum(by_sample, "kept") + _sum(by_sample, "discarded")
    generated += _sum(loose, "response_tokens")
    in_flight = _sum(named, "response_tokens") - _lost(named)
    # Where no request names its trajectory, they are those of the samples, not besides them.
    unassigned = _sum(nameless, "response_tokens") - _lost(nameless) if linked else 0
    return TokenAccount(
        source="requests",
        generated_tokens=generated,
        **_terms(fates),
        discarded_tokens=discarded,
        in_flight_tokens=in_flight,
        unassigned_tokens=unassigned,
        residual_tokens=generated - sum(fates.values()) - discarded - in_flight - unassigned,
        assumed_continued_tokens=_sum(by_sample, "assumed")
        + _sum(loose.filter(pl.col("fate_of_attempt") == "assumed"), "response_tokens"),
        open_requests=_sum(by_sample, "open") + loose["end_ns"].null_count(),
        samples_without_length=born["response_tokens"].null_count(),
    )


def _from_samples(born: pl.DataFrame, open_requests: int) -> TokenAccount | None:
    """Return what the samples alone tell."""
    if born["response_tokens"].null_count() == len(born):
        return None
    known = born.with_columns(pl.col("fate").fill_null(_UNCONSUMED))
    sums = known.group_by("fate").agg(pl.col("response_tokens").cast(pl.Int64).sum())
    fates: dict[str, int] = dict(sums.iter_rows())
    return TokenAccount(
        source="samples",
        generated_tokens=sum(fates.values()),
        **_terms(fates),
        discarded_tokens=None,
        in_flight_tokens=None,
        unassigned_tokens=None,
        residual_tokens=None,
        assumed_continued_tokens=None,
        open_requests=open_requests,
        samples_without_length=born["response_tokens"].null_count(),
    )


def _terms(fates: dict[str, int]) -> dict[str, int]:
    names = {"dropped_stale": "dropped"}
    return {
        f"{names.get(fate, fate)}_tokens": fates.get(fate, 0)
        for fate in ("trained", *LOST_FATES, _UNCONSUMED)
    }


def _lost(requests: pl.DataFrame) -> int:
    return _sum(requests.filter(pl.col("fate_of_attempt") == "discarded"), "response_tokens")


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
