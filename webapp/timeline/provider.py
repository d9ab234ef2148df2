"""Indexes of timelines: built once per trace, kept on disk, shared by everybody.

The cache is apart from the user's data: `$XDG_CACHE_HOME/rlinsight/timeline` (or
`~/.cache/...`), one folder per trace and state of its files. A large trace is indexed by a process
of its own, so that its memory is given back; until it is done, asking raises `IndexingError`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline.index import VERSION, Index, load, save

if TYPE_CHECKING:
    from rlinsight.webapp.store import Run

#: Traces up to this size on disk are indexed at once, by the request that asks.
SMALL_BYTES: Final = 4 << 20
#: Indexes kept open; those on disk are mapped, not read.
MOST_OPEN: Final = 16
#: Bytes of the cache on disk; the indexes that were not used for longest leave.
MOST_BYTES: Final = 8 << 30
#: A growing trace is indexed anew after this long, or this many times what indexing took.
AGAIN_S: Final = 1.5
AGAIN_TIMES: Final = 3.0


class IndexingError(RlinsightError):
    """The index is being built; ask again."""


def cache_folder() -> Path:
    """Return the folder of the cache; nothing of the user's is in it."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "rlinsight" / "timeline"


class Indexes:
    """The indexes of the served traces; safe to use from many threads."""

    def __init__(self, folder: Path | None = None, small_bytes: int = SMALL_BYTES) -> None:
        self.folder = cache_folder() if folder is None else folder
        self._small = small_bytes
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._open: OrderedDict[str, _Kept] = OrderedDict()
        self._working: dict[str, threading.Thread] = {}
        self._failed: dict[str, str] = {}

    def get(self, run: Run, *, wait: bool = False) -> Index:
        """Return the index of a run as it is now; of a growing one, as it was a moment ago.

        Raises IndexingError while it is built for the first time, unless `wait`, and RlinsightError
        when the trace cannot be indexed.
        """
        key = self._key(run)
        with self._lock:
            kept = self._open.get(run.id)
            mine = self._locks.setdefault(run.id, threading.Lock())
        if kept is not None and (kept.key == key or not kept.is_due()):
            self._touch(run.id)
            return kept.index
        if run.stamp.size <= self._small or wait:
            with mine:
                return self._now(run, key)
        return self._later(run, key, kept)

    def _now(self, run: Run, key: str) -> Index:
        with self._lock:
            kept = self._open.get(run.id)
        if kept is not None and kept.key == key:
            return kept.index
        began = time.monotonic()
        index = self._from_disk(key)
        if index is None:
            from rlinsight.webapp.timeline.build import build

            index = build(run.trace)
            if not run.live:
                self._to_disk(index, key)
        self._keep(run.id, _Kept(key, index, time.monotonic() - began))
        return index

    def _later(self, run: Run, key: str, kept: _Kept | None) -> Index:
        index = self._from_disk(key)
        if index is not None:
            self._keep(run.id, _Kept(key, index, 0.0))
            return index
        with self._lock:
            if key in self._failed:
                raise RlinsightError(self._failed[key])
            if run.id not in self._working:
                work = threading.Thread(target=self._build, args=(run, key), daemon=True)
                self._working[run.id] = work
                work.start()
        if kept is not None:
            return kept.index
        raise IndexingError("the timeline of this trace is being indexed for the first time")

    def _build(self, run: Run, key: str) -> None:
        began = time.monotonic()
        target = self.folder / key
        fresh = self.folder / f"{key}.{os.getpid()}.new"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "rlinsight.webapp.timeline.build"]
            done = subprocess.run(
                [*command, str(run.path), str(fresh)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:]
                raise RlinsightError(f"the trace cannot be indexed: {''.join(last)}")
            _move(fresh, target)
            index = load(target)
            self._keep(run.id, _Kept(key, index, time.monotonic() - began))
            _prune(self.folder, keep=target)
        except Exception as error:
            shutil.rmtree(fresh, ignore_errors=True)
            self._failed[key] = str(error)
        finally:
            with self._lock:
                self._working.pop(run.id, None)

    def _key(self, run: Run) -> str:
        digest = hashlib.sha256(os.fsencode(run.path.resolve())).hexdigest()[:24]
        return f"{digest}-{run.stamp}-{VERSION}"

    def _keep(self, run_id: str, kept: _Kept) -> None:
        with self._lock:
            self._open[run_id] = kept
            self._open.move_to_end(run_id)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)

    def _touch(self, run_id: str) -> None:
        with self._lock, suppress(KeyError):
            self._open.move_to_end(run_id)

    def _from_disk(self, key: str) -> Index | None:
        folder = self.folder / key
        try:
            index = load(folder)
            os.utime(folder)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return index

    def _to_disk(self, index: Index, key: str) -> None:
        """Keep the index for the next server; a cache that cannot be written is done without."""
        fresh = self.folder / f"{key}.{os.getpid()}.new"
        try:
            save(index, fresh)
            _move(fresh, self.folder / key)
            _prune(self.folder, keep=self.folder / key)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)


class _Kept:
    """An index in use, of which state of the trace, and when and how long it was made."""

    def __init__(self, key: str, index: Index, took_s: float) -> None:
        self.key, self.index, self._took_s = key, index, took_s
        self._made_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether a change of the trace is worth an index of its own by now."""
        return time.monotonic() - self._made_at > max(AGAIN_S, AGAIN_TIMES * self._took_s)


def _move(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(fresh)  # another server was quicker


def _prune(folder: Path, keep: Path) -> None:
    """Remove older states of the same trace, then what was not used for longest."""
    trace = keep.name.split("-")[0]
    entries = [entry for entry in folder.iterdir() if entry.is_dir() and entry != keep]
    for entry in [e for e in entries if e.name.startswith(f"{trace}-")]:
        shutil.rmtree(entry, ignore_errors=True)
        entries.remove(entry)
    sizes = {entry: _size(entry) for entry in (*entries, keep)}
    for entry in sorted(entries, key=_used_at):
        if sum(sizes.values()) <= MOST_BYTES:
            return
        shutil.rmtree(entry, ignore_errors=True)
        del sizes[entry]


def _size(folder: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in folder.iterdir())
    return 0


def _used_at(folder: Path) -> float:
    with suppress(OSError):
        return folder.stat().st_mtime
    return 0.0
