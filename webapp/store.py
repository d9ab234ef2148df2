"""The traces below the served folder: found, opened and analysed once for everybody.

A trace is addressed by an id that is looked up among the traces found; no parameter is ever made
into a path, so nothing outside the folder can be reached. Links that lead out of it are not
followed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import rlinsight
from rlinsight.errors import RlinsightError, TraceError
from rlinsight.webapp import words
from rlinsight.webapp.folder import Found, Stamp, find_traces, stamp_of
from rlinsight.webapp.state import LABELS, RunState, state_of
from rlinsight.webapp.summary import Summary, summary

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.trace.reader import Trace

T = TypeVar("T")

#: Opened traces kept in memory, the least recently used leave first.
MAX_OPEN: Final = 8
#: And while together they are larger than this on disk, all but the one in use leave.
MAX_OPEN_BYTES: Final = 1 << 30
#: How long a listing of the folder is good for.
LISTING_S: Final = 1.0
#: A growing trace is read anew after this long, or this many times what reading it took.
REREAD_S: Final = 1.5
REREAD_TIMES: Final = 3.0


class UnknownRunError(RlinsightError):
    """An id that belongs to no trace of the served folder."""


class Run:
    """One trace as it was at `stamp`; another one is made when the trace has changed.

    A broken trace is a run, too: what cannot be had of it raises, each time, why. The analysis
    is made when it is first asked for, once for everybody.
    """

    def __init__(self, found: Found, stamp: Stamp) -> None:
        self.id = found.id
        self.name = found.name
        self.path = found.path
        self.stamp = stamp
        self.took_s = 0.0
        self._lock = threading.Lock()
        self._derived_lock = threading.RLock()
        self._trace = self._timed(lambda: rlinsight.open(self.path))
        self._report: Report | RlinsightError | None = None
        self._derived: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def _timed(self, work: Callable[[], T]) -> T | RlinsightError:
        began = time.monotonic()
        try:
            return work()
        except RlinsightError as error:
            return error
        except Exception as error:
            # Whatever a damaged file makes a library raise must not take the other runs along.
            return TraceError(f"`{self.name}` cannot be read: {type(error).__name__}: {error}")
        finally:
            self.took_s += time.monotonic() - began

    @property
    def trace(self) -> Trace:
        """The opened trace. Raises RlinsightError when it cannot be opened."""
        return _given(self._trace)

    @property
    def report(self) -> Report:
        """The analysis. Raises RlinsightError when there is nothing to analyse."""
        with self._lock:
            if self._report is None:
                self._report = self._timed(self._analysed)
            return _given(self._report)

    def _analysed(self) -> Report:
        if self.live and self.trace.time_range is None:
            raise TraceError("nothing has been recorded of this run yet")
        return self.trace.analyze()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for everybody. Raises RlinsightError."""
        with self._derived_lock:
            if name not in self._derived:
                self._derived[name] = self._timed(make)
            return _given(cast("T | RlinsightError", self._derived[name]))

    @property
    def known_report(self) -> Report | None:
        """The analysis if it has been made already and did not fail."""
        return None if isinstance(self._report, RlinsightError) else self._report

    @property
    def start_ns(self) -> int:
        """Time zero of everything shown: the first row. Raises TraceError without a row."""
        found = self.trace.time_range
        if found is None:
            raise TraceError(f"`{self.name}` holds no rows yet")
        return found[0]

    @property
    def state(self) -> RunState:
        """Whether the run goes on, has ended, or fell silent; broken when it cannot be opened."""
        if isinstance(self._trace, RlinsightError):
            return "broken"
        return state_of(self._trace.manifest, self.stamp)

    @property
    def live(self) -> bool:
        """Whether the run goes on."""
        return self.state == "live"

    def seconds(self, ns: int) -> float:
        """Return a time of the trace in seconds since its first row."""
        return (ns - self.start_ns) / 1e9


def _given(value: T | RlinsightError) -> T:
    if isinstance(value, RlinsightError):
        raise value
    return value


@dataclass
class _Kept:
    """What is kept of one id: the newest run, and when it was opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    run: Run | None = None
    read_at: float = 0.0


class Store:
    """All traces below `root`; safe to use from many threads."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root.resolve()
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._listing: dict[str, Found] = {}
        self._listed_at = float("-inf")
        self._rows: dict[str, tuple[Stamp, Summary]] = {}

    def found(self) -> dict[str, Found]:
        """Return the traces by id, in order of their names. A listing is kept for a second."""
        with self._lock:
            if self._clock() - self._listed_at > LISTING_S:
                self._listing = {found.id: found for found in find_traces(self.root)}
                self._listed_at = self._clock()
            return self._listing

    def runs(self) -> Iterator[Run]:
        """Yield every run; a broken one raises only when it is looked into."""
        for run_id in list(self.found()):
            try:
                yield self.run(run_id)
            except UnknownRunError:  # removed meanwhile
                continue

    def run(self, run_id: str) -> Run:
        """Return a run by id, read anew if its files have changed. Raises UnknownRunError."""
        found = self.found().get(run_id)
        if found is None:
            raise UnknownRunError(words.no_such_runs([run_id]))
        kept = self._keep(run_id)
        with kept.lock:
            if kept.run is None or self._is_outdated(kept, found):
                kept.run, kept.read_at = Run(found, stamp_of(found.path)), self._clock()
            run = kept.run
        self._forget(but=run_id)
        return run

    def summaries(self, budget_s: float | None = None) -> list[Summary | None]:
        """Return one row a run; None for those not read within `budget_s`. Rows are kept."""
        until = None if budget_s is None else self._clock() + budget_s
        return [self._summary(found, until) for found in self.found().values()]

    def _summary(self, found: Found, until: float | None) -> Summary | None:
        stamp = stamp_of(found.path)
        with self._lock:
            kept_stamp, kept = self._rows.get(found.id, (None, None))
        if kept_stamp == stamp and kept is not None and kept.state != LABELS["live"]:
            return kept
        if until is not None and self._clock() > until:
            return kept
        try:
            run = self.run(found.id)
        except UnknownRunError:  # removed meanwhile
            return kept
        made = summary(run)
        with self._lock:
            self._rows[found.id] = (run.stamp, made)
        return made

    def stamp(self, run_id: str) -> Stamp | None:
        """Return the stamp of what is shown of a run, None for an unknown one."""
        try:
            return self.run(run_id).stamp
        except UnknownRunError:
            return None

    def _keep(self, run_id: str) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(run_id, _Kept())
            self._kept.move_to_end(run_id)
            return kept

    def _is_outdated(self, kept: _Kept, found: Found) -> bool:
        assert kept.run is not None
        if self._clock() - kept.read_at < max(REREAD_S, REREAD_TIMES * kept.run.took_s):
            return False
        return stamp_of(found.path) != kept.run.stamp

    def _forget(self, *, but: str) -> None:
        """Let the least recently used runs go."""
        with self._lock:
            sizes = {key: kept.run.stamp.size for key, kept in self._kept.items() if kept.run}
            total = sum(sizes.values())
            for key in list(self._kept):
                if key == but or (len(self._kept) <= MAX_OPEN and total <= MAX_OPEN_BYTES):
                    continue
                total -= sizes.get(key, 0)
                del self._kept[key]
