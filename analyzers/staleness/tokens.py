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

from rlinsight.analyzers.staleness.identity import key
from rlinsight.analyzers.staleness.lags import LOST_FATES, born_in

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
    of finished requests whose trajectory was not complete when the recording ended.
    `unassigned_tokens`: of requests that name no trajectory where others do.
    `assumed_continued_tokens` (part of the others, not a term) are of aborted attempts whose
    continuation could not be checked.
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
    table = samples.select(
        "sample_uid",
        fate=pl.col("fate").fill_null(_UNCONSUMED),
        tokens=pl.col("response_tokens").cast(pl.Int64),
        born=born_in(samples, requests, window),
    )
    training = requests.filter(pl.col("validate").ne_missing(pl.lit(value=True)))
    if training["response_tokens"].null_count() == len(training):
        open_requests = training["end_ns"].null_count()
        return _from_samples(table.filter("born"), open_requests)
    table = _numbered(table)
    joined = _joined(_judged(training.select(*_COLUMNS)), table)
    mine = joined.filter("born")
    loose = joined.filter(pl.col("trajectory").is_null())
    if window is not None:
        loose = loose.filter(pl.coalesce("end_ns", "submit_ns").is_between(*window))
    return _from_requests(table.filter("born"), mine, loose)


_COLUMNS = (
    "request_id", "sample_uid", "submit_ns", "end_ns", "attempt", "prompt_tokens",
    "response_tokens",
)  # fmt: skip


def _judged(requests: pl.DataFrame) -> pl.DataFrame:
    """Add how many of each attempt's tokens a later attempt threw away (`discarded`).

    A later attempt of the request keeps of an earlier one what its prompt reaches beyond the
    earlier one's prompt. `assumed` are the tokens for which that could not be checked.
    """
    repeated = requests.select(key("request_id")).to_series().is_duplicated()
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


def _numbered(samples: pl.DataFrame) -> pl.DataFrame:
    """Number the trajectories: outputs of one after the first have its id with `.n` behind."""
    numbered = samples.with_row_index("trajectory")
    if not samples["sample_uid"].str.contains(".", literal=True).any():
        return numbered
    first = pl.col("sample_uid").str.replace(r"/(\d+)\.\d+$", "/${1}")
    return numbered.with_columns(sample_uid=first).with_columns(
        pl.col("trajectory").min().over("sample_uid"), pl.col("born").any().over("sample_uid")
    )


def _joined(requests: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Add each request's trajectory (null: no sample was recorded) and whether it was `born`."""
    firsts = samples.filter(pl.col("trajectory") == pl.int_range(pl.len()))
    firsts = firsts.select("born", "trajectory", key=key("sample_uid"))
    return requests.with_columns(key=key("sample_uid")).join(firsts, on="key", how="left")


def _fate_tokens(samples: pl.DataFrame, requests: pl.DataFrame) -> dict[str, int]:
    """Return response tokens per fate; a sample of unknown length counts what was generated."""
    known = samples.filter(pl.col("tokens").is_not_null()).select("fate", "tokens")
    unknown = samples.filter(pl.col("tokens").is_null()).unique("trajectory")
    generated = (
        requests.join(unknown.select("trajectory"), on="trajectory", how="semi")
        .group_by("trajectory")
        .agg(tokens=pl.col("response_tokens").sum() - pl.col("discarded").sum())
    )
    filled = unknown.drop("tokens").join(generated, on="trajectory").select("fate", "tokens")
    return _summed(pl.concat([known, filled]))


def _summed(tokens: pl.DataFrame) -> dict[str, int]:
    sums: dict[str, int] = dict(tokens.group_by("fate").agg(pl.col("tokens").sum()).iter_rows())
    return sums


def _from_requests(samples: pl.DataFrame, mine: pl.DataFrame, loose: pl.DataFrame) -> TokenAccount:
    """Return the account of `samples`, their requests, and the requests without a sample."""
    fates = _fate_tokens(samples, mine)
    everything = pl.concat([mine, loose])
    named = loose.filter(pl.col("sample_uid").is_not_null())
    nameless = loose.filter(pl.col("sample_uid").is_null())
    generated, discarded = _sum(everything, "response_tokens"), _sum(everything, "discarded")
    in_flight = _sum(named, "response_tokens") - _sum(named, "discarded")
    # Where no request names its trajectory, they are those of the samples, not besides them.
    unassigned = _sum(nameless, "response_tokens") - _sum(nameless, "discarded")
    unassigned = 0 if mine.is_empty() and named.is_empty() else unassigned
    return TokenAccount(
        source="requests",
        generated_tokens=generated,
        **_terms(fates),
        discarded_tokens=discarded,
        in_flight_tokens=in_flight,
        unassigned_tokens=unassigned,
        residual_tokens=generated - sum(fates.values()) - discarded - in_flight - unassigned,
        assumed_continued_tokens=_sum(everything, "assumed"),
        open_requests=everything["end_ns"].null_count(),
        samples_without_length=samples["tokens"].null_count(),
    )


def _from_samples(samples: pl.DataFrame, open_requests: int) -> TokenAccount | None:
    """Return what the samples alone tell."""
    unknown = samples["tokens"].null_count()
    if unknown == len(samples):
        return None
    fates = _summed(samples.select("fate", "tokens"))
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
        samples_without_length=unknown,
    )


def _terms(fates: dict[str, int]) -> dict[str, int]:
    names = {"dropped_stale": "dropped"}
    return {
        f"{names.get(fate, fate)}_tokens": fates.get(fate, 0)
        for fate in ("trained", *LOST_FATES, _UNCONSUMED)
    }


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
