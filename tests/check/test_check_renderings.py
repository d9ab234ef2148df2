"""What `rlinsight check` writes: JSON, JUnit, Markdown, GitLab, annotations and the trend."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from gating import ROOT, SAMPLES, cli

from rlinsight.analyzers.gate.attribution import Attribution, Contribution
from rlinsight.analyzers.gate.result import Acceptance, CheckResult, MetricVerdict, Workload
from rlinsight.baselines.config import AcknowledgedConfig, CheckConfig, MetricConfig
from rlinsight.errors import RlinsightError

PAGE = (ROOT / "docs/check.md").read_text()
RESULTS = (CheckResult, MetricVerdict, Acceptance, Workload, Attribution, Contribution)


@pytest.fixture(scope="module")
def rendered(runs, tmp_path_factory):
    """All files of a check that fails."""
    out = tmp_path_factory.mktemp("out")
    baseline = out / "baselines"
    cli("baseline", "add", runs["first"], "--to", baseline)
    files = {
        "--result": "result.json", "--junit": "junit.xml", "--markdown": "comment.md",
        "--gitlab": "quality.json", "--history": "trend.html",
    }  # fmt: skip
    options = [part for option, name in files.items() for part in (option, out / name)]
    done = cli("check", runs["slow"], "--baseline", baseline, *options)
    assert done.code == 1
    return out


# -- the documentation ---------------------------------------------------------------------


def test_json_has_the_documented_keys(rendered):
    found = json.loads((rendered / "result.json").read_text())
    assert (found["verdict"], found["exit_code"], found["schema_version"]) == ("FAIL", 1, 1)
    keys = {field.name for kind in RESULTS for field in fields(kind)} | {"verdict", "exit_code"}
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()
    assert found.keys() | found["metrics"][0].keys() <= keys
    assert f"version of this document, {found['schema_version']};" in PAGE


def test_every_setting_is_documented_with_its_default():
    part = PAGE.split("\n## check.yaml\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.*\[\]]+)` \| `?([^|`]*)`? \|", part, re.M))
    known = {
        "": CheckConfig, "metrics.*.": MetricConfig, "acknowledged[].": AcknowledgedConfig,
    }  # fmt: skip
    for prefix, model in known.items():
        for name, field in model.model_fields.items():
            shown = rows[prefix + name].strip()
            if isinstance(field.default, (bool, int, float, str)):
                assert shown == str(field.default).replace("False", "false")
            else:
                assert shown in ("none", "required", "see above", "any")


def test_every_metric_is_documented(rendered):
    names = {m["name"] for m in json.loads((rendered / "result.json").read_text())["metrics"]}
    plain = {name for name in names if not name.startswith("bubble.")}
    assert {name for name in plain if f"`{name}`" not in PAGE} == set()


# -- for other programs --------------------------------------------------------------------


def test_junit_has_a_case_per_metric(rendered):
    suite = ET.parse(rendered / "junit.xml").getroot()[0]
    result = json.loads((rendered / "result.json").read_text())
    assert int(suite.get("tests")) == len(suite) == len(result["metrics"])
    failing = {case.get("name") for case in suite if case.find("failure") is not None}
    assert failing == {"tokens_per_s_per_device", "samples_per_s", "step_time_s"}
    assert int(suite.get("failures")) == 3
    assert "train.update_actor" in suite.find("testcase/failure").text


def test_gitlab_lists_what_did_not_pass(rendered):
    rows = json.loads((rendered / "quality.json").read_text())
    assert {row["severity"] for row in rows if "step_time_s" in row["check_name"]} == {"major"}
    assert len({row["fingerprint"] for row in rows}) == len(rows)
    for row in rows:
        assert row.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert row["location"]["lines"]["begin"] == 1


def test_annotations_are_on_one_line_each(runs, baseline, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    done = cli("check", runs["slow"], "--baseline", baseline, "--github")
    errors = [line for line in done.out.splitlines() if line.startswith("::error")]
    assert len(errors) == 3
    assert "%0Atrainer train.update_actor: " in errors[0]
    assert "-2" in errors[0]
    assert (tmp_path / "summary.md").read_text().count("### ❌") == 1


# -- for people ----------------------------------------------------------------------------


def test_markdown_is_a_comment_that_can_be_found_again(rendered):
    text = (rendered / "comment.md").read_text()
    assert text.startswith("<!-- rlinsight-check -->\n### ❌ run3: FAIL")
    assert "| `step_time_s` | ❌ FAIL |" in text
    assert "* trainer train.update\\_actor: " in text


class Page(HTMLParser):
    """Counts the elements of a page and keeps what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.loads: list[str] = []
        self.classes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [v for k, v in attrs if k in ("src", "href")]
        self.classes += [v for k, v in attrs if k == "class"]


def test_the_trend_needs_no_network_and_no_script(rendered):
    page = Page((rendered / "trend.html").read_text())
    assert page.loads == []
    assert "script" not in page.count
    assert page.count["svg"] >= 6
    assert {"trusted", "failed", "band"} <= set(page.classes)


def test_the_trend_alone(runs, baseline, tmp_path):
    cli("baseline", "add", runs["equal"], "--to", baseline, "--untrusted")
    done = cli("check", "--baseline", baseline, "--history", tmp_path / "t.html")
    assert (done.code, done.out.splitlines()[-1]) == (0, f"next: open {tmp_path / 't.html'}")
    page = Page((tmp_path / "t.html").read_text())
    assert {"trusted", "untrusted"} <= set(page.classes)
    assert page.count["circle"] == 2 * page.count["svg"]


def test_what_cannot_be_compared_is_in_every_rendering(tmp_path):
    cli("baseline", "add", SAMPLES / "sync", "--to", tmp_path / "b")
    files = {k: tmp_path / k for k in ("result", "junit", "markdown", "gitlab", "history")}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    done = cli("check", SAMPLES / "fully_async", "--baseline", tmp_path / "b", *options)
    assert isinstance(done.error, RlinsightError)
    result = json.loads(files["result"].read_text())
    assert (result["verdict"], result["exit_code"]) == ("ERROR", 2)
    assert "mode: `sync` -> `fully_async`" in result["error"]
    assert ET.parse(files["junit"]).getroot()[0].get("errors") == "1"
    assert json.loads(files["gitlab"].read_text())[0]["severity"] == "blocker"
    for name in ("markdown", "history"):
        assert "no run of" in files[name].read_text()
