"""A check as JUnit XML: one test case per metric."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rlinsight.report.check.words import attribution_lines, headline, sentence

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict

_SUITE = "rlinsight check"


def junit(result: CheckResult) -> str:
    """Return the document.

    A regression is a failure, what could not be judged an error; inactive, watched and
    acknowledged metrics, and all in shadow mode, are skipped with their reason.
    """
    cases = [_case(result, metric) for metric in result.metrics]
    if result.error is not None or not cases:
        cases = [_only_case(result)]
    suite = ET.Element("testsuite", name=_SUITE, tests=str(len(cases)), time="0")
    for kind, counter in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(counter, str(sum(case.find(kind) is not None for case in cases)))
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(result: CheckResult, metric: MetricVerdict) -> ET.Element:
    case = ET.Element("testcase", classname=_SUITE, name=metric.name, time="0")
    kind = _kind(result, metric)
    if kind is not None:
        problem = ET.SubElement(case, kind, message=_clean(sentence(metric)))
        if kind == "failure" and result.attribution is not None:
            problem.text = _clean("\n".join(attribution_lines(result.attribution)))
    ET.SubElement(case, "system-out").text = _clean(sentence(metric))
    return case


def _kind(result: CheckResult, metric: MetricVerdict) -> str | None:
    if metric.verdict == "PASS":
        return None
    if metric.verdict == "INACTIVE" or result.shadow:
        return "skipped"
    if metric.verdict == "ERROR":
        return "error"
    return "failure" if metric.fails else "skipped"


def _only_case(result: CheckResult) -> ET.Element:
    case = ET.Element("testcase", classname=_SUITE, name="comparison", time="0")
    kind = "error" if result.verdict == "ERROR" else "skipped"
    ET.SubElement(case, kind, message=_clean(headline(result))).text = _clean(result.error or "")
    return case


def _clean(text: str) -> str:
    """XML has no control characters but tab and newline."""
    return "".join(c for c in text if c >= " " or c in "\t\n")
