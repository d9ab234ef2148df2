"""The runs of a comparison, read once for everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rlinsight.analyzers.compare.compare import compare
from rlinsight.analyzers.compare.configs import unknown_variable
from rlinsight.analyzers.compare.entrant import Entrant, entrant
from rlinsight.analyzers.compare.result import Comparison
from rlinsight.errors import RlinsightError
from rlinsight.webapp import urls, words
from rlinsight.webapp.store import Run, Store, UnknownRunError

#: More runs than this are not compared at once.
MOST: Final = 12


def opened(store: Store, query: Mapping[str, str]) -> tuple[list[Run], dict[str, str]]:
    """Return the runs in `runs=` that can be compared, and the others with the reason."""
    runs, problems = [], {}
    for run_id in _known(store, query)[:MOST]:
        try:
            run = store.run(run_id)
            _entrant(run)
            runs.append(run)
        except UnknownRunError:
            continue  # removed meanwhile
        except RlinsightError as error:
            problems[run_id] = str(error)
    return runs, problems


def left_out(store: Store, query: Mapping[str, str]) -> list[str]:
    """Return a sentence each on ids in `runs=` that no run has, and on more than are compared."""
    missing, known = unknown(store, query), len(_known(store, query))
    said = [f"Left out: {words.no_such_runs(missing)}."] if missing else []
    if known > MOST:
        said.append(f"Left out: {known - MOST} of {known} runs; at most {MOST} are compared.")
    return said


def unknown(store: Store, query: Mapping[str, str]) -> list[str]:
    """Return the ids in `runs=` that no run has."""
    found = store.found()
    return [run_id for run_id in urls.ids(query, "runs") if run_id not in found]


def _known(store: Store, query: Mapping[str, str]) -> list[str]:
    found = store.found()
    return [run_id for run_id in urls.ids(query, "runs") if run_id in found]


def comparison(runs: Sequence[Run], query: Mapping[str, str]) -> Comparison:
    """Return the runs side by side; the first one is the reference.

    Raises RlinsightError for fewer than two. A knob that no run has is none.
    """
    entrants, knob = [_entrant(run) for run in runs], query.get("knob") or None
    if knob is not None and unknown_variable(knob, [one.whole.identity for one in entrants]):
        knob = None
    return compare(entrants, knob=knob)


def _entrant(run: Run) -> Entrant:
    # The id is what tells runs of the same name apart.
    return run.once("entrant", lambda: entrant(run.id, run.trace, run.report))
