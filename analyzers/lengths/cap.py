"""Which responses were cut at a length limit, seen from the lengths themselves.

Problem: the share of responses equal to `max_response_length` is 0 whenever another limit
binds first, such as the context length over prompt + response (verl-project/verl#7823). A
limit that binds shows as a pile-up: many samples at exactly the largest length, where a
distribution that merely thins out has one or two.

Test: with `near` samples in the last 5 % below the maximum (`width` values), chance puts
about (near + 1) / width samples on the maximum beside the one that makes it the maximum. If so
many as there are have a Poisson probability below 1e-4, the maximum is a limit. It is looked
for in response lengths and in prompt + response lengths. Where every response has the same
length, that length is taken for a limit.

Worked example: lengths 1 to 99 once each and 100 twenty times: near 5 in 5 values, expected
1.2 beside the first, found 19: the limit is 100, the share at it 20/119.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from rlinsight.analyzers.significance import poisson_above

_NEAR: Final = 0.05
_CHANCE: Final = 1e-4
_OWN: Final = pl.col("response_tokens")
_TOTAL: Final = pl.col("prompt_tokens") + pl.col("response_tokens")


@dataclass(frozen=True)
class LengthCap:
    """Limits found, in tokens (None: none binds), and the share of samples that reach one.

    `configured_share` is the share equal to the configured limit alone, `finish_share` that
    of the requests which the engine ended for their length; None where not known.
    """

    response_cap_tokens: int | None
    total_cap_tokens: int | None
    configured_cap_tokens: int | None
    cap_share: float | None
    configured_share: float | None
    finish_share: float | None

    def reached(self) -> pl.Expr:
        """Return whether a sample (prompt_tokens, response_tokens) reaches one of the limits."""
        return reaches(self.response_cap_tokens, self.total_cap_tokens, self.configured_cap_tokens)


def length_cap(
    samples: pl.DataFrame,
    requests: pl.DataFrame | None = None,
    *,
    max_response_tokens: int | None = None,
) -> LengthCap:
    """Return the limits that bind in `samples` (prompt_tokens, response_tokens).

    `max_response_tokens` is the configured limit; lengths that reach it count as cut even if
    too few of them pile up.
    """
    known = samples.filter(pl.col("response_tokens").is_not_null())
    response, total = (known.select(length).to_series() for length in (_OWN, _TOTAL))
    found = piled_up_at(response), piled_up_at(total)
    return LengthCap(
        response_cap_tokens=found[0],
        total_cap_tokens=found[1],
        configured_cap_tokens=max_response_tokens,
        cap_share=_mean(known, reaches(*found, max_response_tokens)),
        configured_share=None
        if max_response_tokens is None
        else _mean(known, _OWN.eq(max_response_tokens)),
        finish_share=_finish_share(requests),
    )


def configured_cap(config: Mapping[str, Any] | None) -> int | None:
    """Return the configured limit of a response, of a resolved verl configuration."""
    value: Any = config
    for name in ("data", "max_response_length"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else int(value)


def reaches(response: int | None, total: int | None, configured: int | None) -> pl.Expr:
    """Return whether a sample's lengths reach one of these limits (tokens; None: no limit)."""
    limits = ((_OWN, response), (_TOTAL, total), (_OWN, configured))
    return pl.any_horizontal(
        pl.lit(value=False),
        *(
            (length >= limit).fill_null(value=False)
            for length, limit in limits
            if limit is not None
        ),
    )


def piled_up_at(lengths: pl.Series) -> int | None:
    """Return the largest length if so many samples have it that it must be a limit."""
    known = lengths.drop_nulls()
    largest = known.max()
    if not isinstance(largest, int):
        return None
    width = max(1, round(_NEAR * largest))
    top = int((known == largest).sum())
    near = int((known >= largest - width).sum()) - top
    return largest if poisson_above(top - 2, (near + 1) / width) < _CHANCE else None


def _finish_share(requests: pl.DataFrame | None) -> float | None:
    if requests is None:
        return None
    ended = requests.filter(
        pl.col("finish").is_in(["stop", "length"])
        & pl.col("validate").ne_missing(pl.lit(value=True))
    )
    return _mean(ended, pl.col("finish") == "length")


def _mean(frame: pl.DataFrame, expression: pl.Expr) -> float | None:
    if frame.is_empty():
        return None
    return float(frame.select(share=expression.cast(pl.Float64).mean())["share"][0])
