"""Response lengths to draw from: recorded groups, stretched, and cut at the maximum.

Responses to one prompt resemble each other, and what a batch waits for is the longest of a
group, so whole groups are drawn with replacement (a cluster bootstrap): the correlation within
a group is the recorded one. A group size other than the recorded one draws that many members of
a drawn group, with replacement.

A length at the recorded maximum was cut there; what it would have been is unknown. When the
maximum is raised, it is continued with the exponential tail (mean excess) of the recorded
lengths above their 75 % quantile, which is an extrapolation and is reported as such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: A spread of logarithms is only stretched about a positive length.
_SHORTEST = 1.0
_TAIL_QUANTILE = 0.75


@dataclass(frozen=True)
class LengthModel:
    """Recorded groups of response lengths in tokens, all of one size, cut at `cap`."""

    groups: tuple[tuple[int, ...], ...]
    cap: int

    @property
    def mean(self) -> float:
        """Return the mean response length in tokens."""
        return float(np.mean(self.groups))

    @property
    def capped_share(self) -> float:
        """Return the share of responses that were cut at the recorded maximum."""
        return float((np.asarray(self.groups) >= self.cap).mean())

    def draw(
        self,
        rng: np.random.Generator,
        count: int,
        size: int,
        *,
        maximum: int | None = None,
        scale: float = 1.0,
        tail: float = 1.0,
    ) -> Array:
        """Return lengths in tokens, shape (count, size), none above `maximum`.

        `scale` multiplies the mean; `tail` multiplies the deviations of the logarithms from
        their mean, after which the mean is restored: 2 makes long responses longer and short
        ones shorter.
        """
        recorded = np.asarray(self.groups, dtype=np.float64)
        limit = self.cap if maximum is None else maximum
        drawn = recorded[rng.integers(0, len(recorded), size=count)]
        if size == recorded.shape[1]:
            drawn = rng.permuted(drawn, axis=1)
        else:
            drawn = np.take_along_axis(
                drawn, rng.integers(0, recorded.shape[1], size=(count, size)), axis=1
            )
        lengths = self._continued(rng, drawn) if limit > self.cap or scale < 1 else drawn
        cut: Array = np.clip(_stretched(lengths, scale, tail), _SHORTEST, limit)
        return cut

    def _continued(self, rng: np.random.Generator, drawn: Array) -> Array:
        at_cap = drawn >= self.cap
        if not at_cap.any():
            return drawn
        recorded = np.asarray(self.groups, dtype=np.float64).ravel()
        threshold = np.quantile(recorded, _TAIL_QUANTILE)
        above = recorded[recorded > threshold]
        excess = float((above - threshold).mean()) if len(above) else self.mean
        return drawn + at_cap * rng.exponential(excess, size=drawn.shape)


def _stretched(lengths: Array, scale: float, tail: float) -> Array:
    if tail == 1.0 or lengths.size == 0:
        return lengths * scale
    logs = np.log(np.maximum(lengths, _SHORTEST))
    spread = np.exp(logs.mean() + (logs - logs.mean()) * tail)
    stretched: Array = spread * (lengths.mean() / spread.mean()) * scale
    return stretched
