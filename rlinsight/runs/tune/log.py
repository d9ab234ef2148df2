"""The log of a tuning: everything that was planned, measured and decided.

The log is the state: the loop knows nothing that is not in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rlinsight.runs.tune.limits import Limits

if TYPE_CHECKING:
    from rlinsight.analyzers.advise.finding import Aim

TUNE_SCHEMA_VERSION: Final = 1

Kind = Literal["smoke", "baseline", "experiment"]
Decision = Literal["passed", "kept", "reverted", "failed", "interrupted", "repeated"]
Objective = Literal["per-device", "wall-clock"]


@dataclass(frozen=True)
class Candidate:
    """A finding of the advisor, as far as an experiment needs it.

    `overrides` are the exact settings of verl; `predicted` is the relative change of the
    objective with its interval, None where the simulator does not know.
    """

    rule: str
    tier: int
    variables: str
    says: str
    evidence: tuple[str, ...]
    overrides: tuple[str, ...]
    predicted: tuple[float, float | None, float | None] | None
    risk: str
    verify: str
    falsifier: str
    costs_quality: bool
    changes_reward: bool = False
    mend_first: bool = False
    aim: Aim = "throughput"

    @property
    def change(self) -> str:
        """What is changed, as one would type it."""
        return " ".join(self.overrides)


@dataclass(frozen=True)
class Measured:
    """What a finished run showed. `problem` is why it cannot be used: it failed, or stands still.

    `value` is the objective with its 95 % interval over `windows` steady windows.
    """

    problem: str | None
    windows: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    answer: str = ""
    candidates: tuple[Candidate, ...] = ()
    cleared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """An experiment beside the kept run: the relative change of the objective, and what it cost.

    `real` as in docs/compare.md; None where the two could not be compared, and `reason` says why.
    `losses` are what the quality guard found, `differences` the other figures that really differ.
    """

    change: float | None
    low: float | None
    high: float | None
    detectable: float | None
    real: Literal["better", "worse", "no"] | None
    reason: str
    losses: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One run: what it was for, what it ran, and what came of it.

    `beside` is the number of the kept run it is compared with. Times are Unix seconds.
    """

    number: int
    kind: Kind
    document: dict[str, Any]
    trace: str
    began_s: float
    beside: int | None = None
    candidate: Candidate | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    measured: Measured | None = None
    judged: Judged | None = None
    decision: Decision | None = None
    reason: str = ""

    @property
    def counts(self) -> bool:
        """Whether it was decided on and stands: what was interrupted or repeated does not."""
        return self.decision not in (None, "interrupted", "repeated")


@dataclass(frozen=True)
class Skipped:
    """A finding of run `beside` that was not tried, and why."""

    beside: int
    rule: str
    change: str
    reason: str


@dataclass(frozen=True)
class Log:
    """The whole tuning. `document` is the configuration that it began with.

    `limits` are those of the last call; experiments before run `patience_from` do not count as
    fruitless any more.
    """

    name: str
    config: str
    folder: str
    cwd: str
    objective: Objective
    document: dict[str, Any]
    records: tuple[Record, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    stopped: str | None = None
    limits: Limits | None = None
    patience_from: int = 0
    schema_version: int = TUNE_SCHEMA_VERSION

    def of_kind(self, kind: Kind) -> list[Record]:
        """Return the decided runs of a kind that count."""
        return [one for one in self.records if one.kind == kind and one.counts]

    @property
    def kept(self) -> Record | None:
        """The best run so far: the baseline, or the experiment that was kept last."""
        return next((one for one in reversed(self.records) if one.decision == "kept"), None)

    @property
    def to_measure(self) -> dict[str, Any]:
        """What a baseline runs: the last kept configuration that is to be measured again."""
        again = (one for one in reversed(self.records) if one.decision == "repeated")
        return next((one.document for one in again if one.kind != "smoke"), self.document)

    def stands(self, one: Record) -> bool:
        """Whether what a run showed still decides: not beside a run that is made again."""
        beside = self.record(one.beside)
        is_beside = one.beside is None or (beside is not None and beside.counts)
        return one.counts and (is_beside or one.decision == "kept")

    @property
    def open(self) -> Record | None:
        """The run that was begun and is not decided on, None where there is none."""
        last = self.records[-1] if self.records else None
        return last if last is not None and last.decision is None else None

    def record(self, number: int | None) -> Record | None:
        """Return a run by its number."""
        return next((one for one in self.records if one.number == number), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; see docs/tune.md."""
        return asdict(self)
