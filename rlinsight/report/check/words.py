"""The words and numbers of a check that all renderers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.units import amount, counted, number, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.attribution import Attribution, Contribution
    from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict, Workload

#: The columns of the table of metrics.
COLUMNS = ("metric", "verdict", "value", "reference", "change [95 %]", "corridor", "detectable")


def difference(value: float | None, unit: str, reference: float | None) -> str:
    """Return a signed change: in percent of the reference, shares in percentage points."""
    if value is None:
        return "-"
    if unit == "share":
        return f"{_unsigned_zero(value * 100, 2):+.2f} pp"
    if reference is None or reference <= 0:
        return f"{'+' if value >= 0 else ''}{number(value)}"
    return f"{_unsigned_zero(value / reference * 100, 1):+.1f} %"


def _unsigned_zero(value: float, digits: int) -> float:
    return round(value, digits) + 0.0


def change(metric: MetricVerdict) -> str:
    """Return the change with its 95 % interval."""
    if metric.change is None:
        return "-"
    low, middle, high = (
        difference(value, metric.unit, metric.reference)
        for value in (metric.low, metric.change, metric.high)
    )
    return f"{middle} [{low.rsplit(' ', 1)[0]}, {high.rsplit(' ', 1)[0]}]"


def width(value: float | None, metric: MetricVerdict) -> str:
    """Return a half-width around the reference."""
    text = difference(value, metric.unit, metric.reference)
    return text if value is None else f"±{text.lstrip('+')}"


def label(metric: MetricVerdict) -> str:
    """Return the verdict as it is shown, with what it does to the build."""
    if metric.verdict == "FAIL" and metric.acknowledged is not None:
        return "FAIL (expired)" if metric.acknowledged.expired else "FAIL (acknowledged)"
    if metric.verdict == "FAIL" and not metric.gates:
        return "FAIL (watched)"
    return "PASS (better)" if metric.direction == "better" else metric.verdict


def cells(metric: MetricVerdict) -> tuple[str, ...]:
    """Return the row of a metric, for `COLUMNS`."""
    return (
        metric.name,
        label(metric),
        amount(metric.value, metric.unit),
        amount(metric.reference, metric.unit),
        change(metric),
        width(metric.corridor, metric),
        width(metric.detectable, metric),
    )


def sentence(metric: MetricVerdict) -> str:
    """Return one metric in a sentence, for an annotation."""
    if metric.change is None:
        return f"{metric.name}: {metric.reason}"
    text = (
        f"{metric.name}: {amount(metric.value, metric.unit)} against "
        f"{amount(metric.reference, metric.unit)}, {change(metric)}, corridor "
        f"{width(metric.corridor, metric)}; {metric.reason}"
    )
    if metric.acknowledged is not None:
        state = "expired on" if metric.acknowledged.expired else "acknowledged until"
        text += f" ({state} {metric.acknowledged.until}: {metric.acknowledged.reason})"
    return text


def headline(result: CheckResult) -> str:
    """Return the verdict on the run in one line."""
    verdict = f"{result.verdict} (shadow: the build passes)" if result.shadow else result.verdict
    return f"{result.run_id or 'figures'}: {verdict}{_why(result)}"


def _why(result: CheckResult) -> str:
    if result.error is not None:
        return f": {result.error.splitlines()[0]}"
    failed = [metric for metric in result.metrics if metric.fails]
    if failed:
        worst = ", ".join(f"{m.name} {_middle(m)}" for m in failed[:3])
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        return f": {worst}{more}{_mostly(result)}"
    errors = [metric for metric in result.metrics if metric.verdict == "ERROR"]
    if errors:
        return f": {sentence(errors[0])}"
    return f": {_not_compared(result)}" if result.verdict == "INACTIVE" else _passed(result)


def _not_compared(result: CheckResult) -> str:
    others = any(metric.gates and metric.verdict == "PASS" for metric in result.metrics)
    what = "neither throughput nor step time was compared" if others else "nothing was compared"
    inactive = [metric for metric in result.metrics if metric.verdict == "INACTIVE"]
    return f"{what}; {inactive[0].reason}" if inactive else what


def _passed(result: CheckResult) -> str:
    judged = [m for m in result.metrics if m.gates and m.verdict == "PASS"]
    text = f": {counted(len(judged), 'metric')} beside {counted(len(result.history), 'run')}"
    better = [f"{m.name} {_middle(m)}" for m in judged if m.direction == "better"]
    excused = [m.name for m in result.metrics if m.acknowledged and not m.fails]
    text += f", better: {', '.join(better[:3])}" if better else ""
    return text + (f", acknowledged: {', '.join(excused)}" if excused else "")


def _middle(metric: MetricVerdict) -> str:
    return difference(metric.change, metric.unit, metric.reference)


def _mostly(result: CheckResult) -> str:
    found = result.attribution
    if found is None or found.leading is None or found.after_s <= found.before_s:
        return ""
    return f"; mostly {found.leading.pool} {found.leading.state}"


def workload_line(work: Workload) -> str:
    """Return what the responses were like beside the baseline."""
    text = (
        f"workload: responses of {number(work.mean_tokens)} tokens, baseline "
        f"{number(work.reference_tokens)} ({(work.change or 0) * 100:+.1f} %)"
    )
    if not work.matchable:
        return f"{text}; DRIFT beyond matching: length-bound metrics are not judged"
    return f"{text}; DRIFT, compared at equal length" if work.drifted else text


def attribution_lines(found: Attribution) -> list[str]:
    """Return where the time of a step went, one line a contributor."""
    factors = ""
    if found.tokens_ratio is not None and found.pace_ratio is not None:
        factors = (
            f" = {found.tokens_ratio:.2f}x tokens per step x {found.pace_ratio:.2f}x seconds per "
            "token"
        )
    first = (
        f"a step takes {seconds(found.after_s)} instead of {seconds(found.before_s)}: "
        f"{found.period_ratio:.2f}x{factors}"
    )
    return [first, *map(contribution_line, found.contributions)]


def contribution_line(row: Contribution) -> str:
    """Return one contributor: how many seconds per step, and per token."""
    share = "" if row.share is None or row.share <= 0 else f", {percent(row.share)} of the change"
    pace = "" if row.per_token is None else f", {row.per_token * 100:+.0f} % per token"
    return (
        f"{row.pool} {row.state}: {seconds(row.before_s)} -> {seconds(row.after_s)} per step "
        f"(+{seconds(row.change_s)}{share}{pace})"
    )


def notes(result: CheckResult) -> list[str]:
    """Return what a reader must know beside the table, one line each."""
    found = []
    if result.workload is not None:
        found.append(workload_line(result.workload))
    found += [sentence(metric) for metric in result.metrics if metric.acknowledged is not None]
    found += [f"{m.name}: {m.reason}" for m in result.metrics if m.verdict == "ERROR"]
    if result.ignored:
        found.append(f"differs from the baseline, as allowed: {', '.join(result.ignored)}")
    found += [f"left out of the history: {name}, {why}" for name, why in result.excluded.items()]
    found += [f"doubt: {doubt}" for doubt in result.doubts]
    return found


def method(result: CheckResult) -> str:
    """Return how the run was judged, in one line."""
    names = {"bh": "Benjamini-Hochberg", "holm": "Holm", "none": "not corrected"}
    windows = f"{counted(result.windows, 'steady window')} ({result.cut}), " if result.cut else ""
    return (
        f"{windows}{counted(len(result.history), 'trusted run')}, identity {result.identity_key}; "
        f"false alarms at most {percent(result.alpha)} per check ({names[result.correction]})"
    )
