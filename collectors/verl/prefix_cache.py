"""The hit rate of a replica's prefix cache, which a weight update empties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class HitRate:
    """Cached share of the prompt tokens that were looked up, per sampling interval.

    An interval without a look-up has no rate: it is left out, not 0.
    """

    interval_ns: int
    _began_ns: int | None = None
    _queries: int = 0
    _hits: int = 0

    def add(self, ts_ns: int, stats: Any) -> float | None:
        """Take vLLM's `PrefixCacheStats` of one engine step (or None); return the rate when due.

        Tokens of requests that were preempted and looked up again are not counted.
        """
        if stats is not None:
            self._queries += stats.queries
            self._hits += stats.hits
        if self._began_ns is None:
            self._began_ns = ts_ns
        if ts_ns - self._began_ns < self.interval_ns or not self._queries:
            return None
        rate = self._hits / self._queries
        self._began_ns, self._queries, self._hits = ts_ns, 0, 0
        return rate
