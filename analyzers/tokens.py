"""Where the generated tokens went: trained, lost, or still on their way.

Problem: work is thrown away in places that no metric adds up: samples too old to train,
groups without a signal, trajectories that failed, and attempts that a weight sync aborted.
The account is in response tokens:

    generated = trained + dropped + filtered + aborted + discarded + unconsumed + in flight
                + unassigned + residual

Generated is what the requests of training say. An aborted attempt is not lost if the next
attempt of the same request goes on from it (partial rollout): its prompt is then longer by
the tokens it got. What the prompts of later attempts no longer hold is `discarded`. Where
prompt lengths are not recorded, attempts are assumed to be continued and counted as such.
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
#: Stands for the unknown prompt of a later attempt; below every length, so it survives a minimum.
_NOT_KNOWN: Final = -1


@dataclass(frozen=True)
class TokenAccount:
    """Response tokens by what became of them; see the module for the identity they obey.

    `source` tells whether `generated_tokens` was counted from requests or is the sum over
    samples, in which case there is nothing to check it against and `residual_tokens` is None.
    `discarded_tokens`: of attempts that a later one did not go on from. `in_flight_tokens`:
    of finished requests whose trajectory was not complete when the recording ended. `unassigned_tokens`:
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
    """Add how many of each attempt's tokens a later attempt threw away (`discarded`).

    A later attempt of the request keeps of an earlier one what its prompt reaches beyond the
    earlier one's prompt. `assumed` are the tokens for which that could not be checked.
    """
    repeated = requests["request_id"].is_duplicated()
    none = pl.lit(0, pl.Int64)
    single = requests.filter(~repeated).with_columns(discarded=none, assumed=none)
    later = pl.col("prompt_tokens").fill_null(_NOT_KNOWN).reverse().cum_min().reverse().shift(-1)
    tokens = pl.col("response_tokens").cast(pl.Int64)
    reached = pl.col("prompt_tokens") + tokens
    # Of an attempt with unknown prompt or length, or one followed by an unknown prompt.
    unclear = pl.col("later").is_not_null() & ((pl.col("later") == _NOT_KNOWN) | reached.is_null())
    lost = (reached - pl.col("later")).clip(0, tokens).fill_null(0)
    chain = requests.filter(repeated).sort("request_id", "attempt", "submit_ns")
    judged = chain.with_columns(later=later.over("request_id")).with_columns(
        discarded=pl.when(unclear).then(none).otherwise(lost),
        assumed=pl.when(unclear).then(tokens.fill_null(0)).otherwise(none),
    )
    return pl.concat([single, judged.drop("later")])


def _per_sample(
    requests: pl.DataFrame, samples: pl.DataFrame, born: pl.DataFrame, window: Window | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return tokens per sample of `born`, and the requests in `window` that have no sample."""
    known = requests.join(_trajectories(samples), on="sample_uid", how="semi")
    loose = requests.join(_trajectories(samples), on="sample_uid", how="anti")
    if window is not None:
        loose = loose.filter(pl.coalesce("end_ns", "submit_ns").is_between(*window))
    mine = known.join(_trajectories(born), on="sample_uid", how="semi")
    by_sample = mine.group_by("sample_uid").agg(
        generated=pl.col("response_tokens").cast(pl.Int64).sum(),
        discarded=pl.col("discarded").sum(),
        assumed=pl.col("assumed").sum(),
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
    filled = unknown.join(by_sample, on="sample_uid", how="left").with_columns(
        own=pl.col("generated") - pl.col("discarded")
    )
    known = lengths.filter(pl.col("own").is_not_null()).cast({"own": pl.Int64})
    sums = (
        pl.concat([known, filled.select(known.columns)]).group_by("fate").agg(pl.col("own").sum())
    )
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
    discarded = _sum(by_sample, "discarded") + _sum(loose, "discarded")
    generated = _sum(by_sample, "generated") + _sum(loose, "response_tokens")
    in_flight = _sum(named, "response_tokens") - _sum(named, "discarded")
    unassigned = _sum(nameless, "response_tokens") - _sum(nameless, "discarded")
    # Where no request names its trajectory, they are those of the samples, not besides them.
    unassigned = unassigned if linked else 0
    return TokenAccount(
        source="requests",
        generated_tokens=generated,
        **_terms(fates),
        discarded_tokens=discarded,
        in_flight_tokens=in_flight,
        unassigned_tokens=unassigned,
        residual_tokens=generated - sum(fates.values()) - discarded - in_flight - unassigned,
        assumed_continued_tokens=_sum(by_sample, "assumed") + _sum(loose, "assumed"),
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


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
