"""Where the time went that a run takes longer: the ledgers of two runs, state by state.

Both ledgers are put per training step and device, so that the states of each pool sum to the
step period, and their changes to its change. The period itself is tokens per step x seconds per
token: the first factor is the workload, the second the pace.

Worked example: steps of 10 s become 16 s, of which update_actor took 2 s and takes 8 s, at the
same tokens: 100 % of the change is train.update_actor, the pace ratio 1.6, the tokens ratio 1.

Bubbles are where a delay shows, work is where it arises: a trainer that became slower adds the
same seconds to `bubble.staleness_quota` of the other pool. The leading state is therefore the work
or overhead that grew most, if it explains at least half of the largest growth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlinsight.analyzers.device_time.states import kind
from rlinsight.analyzers.gate.observation import Observation

#: How many contributors are named.
LISTED: Final = 3


@dataclass(frozen=True)
class Contribution:
    """A state of a pool that takes longer, in seconds per step and device.

    `share` is of the change of the step period; `per_token` the relative change of its seconds
    per trained token, None where tokens are unknown or it took no time before.
    """

    pool: str
    state: str
    before_s: float
    after_s: float
    share: float | None
    per_token: float | None

    @property
    def change_s(self) -> float:
        """Seconds per step and device, positive for longer."""
        return self.after_s - self.before_s


@dataclass(frozen=True)
class Attribution:
    """How the step period changed and which states make up the change, the largest first.

    period_ratio = tokens_ratio (per step) x pace_ratio (seconds per token).
    """

    before_s: float
    after_s: float
    period_ratio: float
    tokens_ratio: float | None
    pace_ratio: float | None
    leading: Contribution | None
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True)
class _PerStep:
    period_s: float
    tokens: float | None
    states: dict[tuple[str, str], float]


def attribution(new: Observation, history: Sequence[Observation]) -> Attribution | None:
    """Return where the time of `new` went beside the mean of `history`; None without steps."""
    after, before = _per_step([new]), _per_step(history)
    if after is None or before is None or not before.period_s:
        return None
    ratio = after.period_s / before.period_s
    tokens = _over(after.tokens, before.tokens)
    rows = sorted(_contributions(after, before, tokens), key=lambda row: -row.change_s)
    grown = [row for row in rows if row.change_s > 0]
    return Attribution(
        before_s=before.period_s,
        after_s=after.period_s,
        period_ratio=ratio,
        tokens_ratio=tokens,
        pace_ratio=None if not tokens else ratio / tokens,
        leading=_leading(grown),
        contributions=tuple(grown[:LISTED]),
    )


def _contributions(after: _PerStep, before: _PerStep, tokens: float | None) -> list[Contribution]:
    change = after.period_s - before.period_s
    found = []
    for pool, state in dict.fromkeys((*before.states, *after.states)):
        old, now = before.states.get((pool, state), 0.0), after.states.get((pool, state), 0.0)
        found.append(
            Contribution(
                pool=pool,
                state=state,
                before_s=old,
                after_s=now,
                share=(now - old) / change if change else None,
                per_token=now / old / tokens - 1 if old and tokens else None,
            )
        )
    return found


def _leading(grown: Sequence[Contribution]) -> Contribution | None:
    if not grown:
        return None
    work = next((row for row in grown if kind(row.state) != "bubble"), None)
    return work if work and work.change_s >= grown[0].change_s / 2 else grown[0]


def _per_step(runs: Sequence[Observation]) -> _PerStep | None:
    """Return the mean over runs of what a step takes."""
    found = [one for run in runs if (one := _of_run(run)) is not None]
    if not found:
        return None
    tokens = [one.tokens for one in found if one.tokens is not None]
    states = dict.fromkeys(state for one in found for state in one.states)
    return _PerStep(
        period_s=sum(one.period_s for one in found) / len(found),
        tokens=sum(tokens) / len(tokens) if tokens else None,
        states={s: sum(one.states.get(s, 0.0) for one in found) / len(found) for s in states},
    )


def _of_run(run: Observation) -> _PerStep | None:
    steps = _sum(run, "steps")
    if not steps:
        return None
    states = {}
    for pool, devices in run.devices.items():
        for name in run.windows:
            if name.startswith(f"{pool}/"):
                spent = _sum(run, name) or 0.0
                states[pool, name.split("/", 1)[1]] = spent / devices / steps
    tokens = _sum(run, "tokens")
    return _PerStep(
        (_sum(run, "seconds") or 0.0) / steps, tokens / steps if tokens else None, states
    )


def _sum(run: Observation, name: str) -> float | None:
    known = [value for value in run.windows.get(name, ()) if value is not None]
    return sum(known) if known else None


def _over(after: float | None, before: float | None) -> float | None:
    return after / before if after is not None and before else None
