"""`rlinsight check` and `rlinsight baseline`, as a user and as a CI would call them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import fsspec
import pytest
import yaml
from gating import ROOT, cli, gate_runs

from rlinsight.analyzers.gate.attribution import Attribution, Contribution
from rlinsight.analyzers.gate.result import Acceptance, CheckResult, MetricVerdict, Workload
from rlinsight.baselines.config import AcknowledgedConfig, CheckConfig, MetricConfig
from rlinsight.errors import BaselineError, ConfigError, RlinsightError
from rlinsight.trace.manifest import update_manifest

Kind = gate_runs.Kind
SAMPLES = ROOT / "sample_traces"
MODES = ("sync", "colocate_async", "separate_async", "fully_async")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Traces of known making: two equal runs, a slowed one, one without samples."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = {
        "first": (Kind(), 1),
        "equal": (Kind(), 2),
        "slow": (Kind(slow={"update_actor": 1.8}), 3),
    }
    return {name: gate_runs.write(folder / name, *kind) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, runs) -> Path:
    folder = tmp_path_factory.mktemp("accepted") / "b"
    assert cli("baseline", "add", runs["first"], "--to", folder).code == 0
    return folder


@pytest.fixture
def baseline(tmp_path, accepted) -> Path:
    """A folder of its own with one accepted run."""
    return Path(shutil.copytree(accepted, tmp_path / "b"))


# -- exit codes ----------------------------------------------------------------------------


def test_an_equal_run_passes_and_says_what_to_type_next(runs, baseline):
    done = cli("check", runs["equal"], "--baseline", baseline)
    assert done.code == 0
    assert "run2: PASS: 6 metrics beside 1 run" in done.out
    assert done.out.splitlines()[-1] == (
        f"next: rlinsight baseline add {runs['equal']} --to {baseline}"
    )


def test_a_slowed_run_fails_and_says_where_the_time_went(runs, baseline):
    done = cli("check", runs["slow"], "--baseline", baseline)
    assert done.code == 1
    assert "mostly trainer train.update_actor" in done.out
    assert "trainer train.update_actor: 2.8" in done.out
    assert "seconds per token" in done.out
    assert done.out.splitlines()[-1] == f"next: rlinsight analyze {runs['slow']}"


def test_shadow_mode_reports_and_passes(runs, baseline):
    done = cli("check", runs["slow"], "--baseline", baseline, "--shadow")
    assert done.code == 0
    assert "run3: FAIL (shadow: the build passes)" in done.out


def test_an_empty_baseline_is_inactive_and_loud(runs, tmp_path):
    (tmp_path / "b").mkdir()
    done = cli("check", runs["equal"], "--baseline", tmp_path / "b", "--github")
    assert done.code == 0
    assert "run2: INACTIVE: nothing was compared; no trusted run to compare with" in done.out
    assert "::warning title=rlinsight check%3A not everything was compared" in done.out


def test_a_baseline_without_trusted_runs_is_inactive(runs, baseline):
    cli("baseline", "trust", "run1", baseline, "--off", "--note", "other driver")
    done = cli("check", runs["equal"], "--baseline", baseline)
    assert done.code == 0
    assert "INACTIVE" in done.out
    assert "left out of the history: run1, not trusted: other driver" in done.out


def test_no_baseline_at_all_is_unusable(runs, tmp_path):
    done = cli("check", runs["equal"], "--baseline", tmp_path / "nowhere")
    assert (done.code, type(done.error)) == (2, BaselineError)
    assert "`rlinsight baseline add TRACE --to" in done.err


def test_a_trace_that_is_none_is_unusable(tmp_path, baseline):
    (tmp_path / "empty").mkdir()
    assert cli("check", tmp_path / "empty", "--baseline", baseline).code == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "rlinsight-baseline"}', "{}"])
def test_a_damaged_baseline_is_unusable_and_not_left_out(runs, baseline, content):
    (baseline / "broken.json").write_text(content)
    done = cli("check", runs["equal"], "--baseline", baseline)
    assert done.code == 2
    assert "broken.json" in done.err


def test_nothing_to_compare_with_is_a_usage_error(runs):
    assert isinstance(cli("check", runs["equal"]).error, ConfigError)


# -- the recorded sample traces ------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_sample_trace_passes_beside_itself_and_says_so(tmp_path, mode):
    cli("baseline", "add", SAMPLES / mode, "--to", tmp_path / "b")
    done = cli("check", SAMPLES / mode, "--baseline", tmp_path / "b")
    assert done.code == 0, done.out
    assert ": PASS: " in done.out
    assert "doubt: the run is compared with itself" in done.out


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async", "fully_async"])
def test_another_mode_is_refused_with_the_keys_that_differ(tmp_path, mode):
    cli("baseline", "add", SAMPLES / "sync", "--to", tmp_path / "b")
    done = cli("check", SAMPLES / mode, "--baseline", tmp_path / "b")
    assert (done.code, type(done.error)) == (2, BaselineError)
    assert f"  mode: `sync` -> `{mode}`" in done.err
    assert "these keys differ (baseline -> this run)" in done.err


def test_keys_may_be_allowed_to_differ_and_are_then_named(tmp_path):
    cli("baseline", "add", SAMPLES / "sync", "--to", tmp_path / "b")
    options = ("--ignore", "config.*", "--ignore", "hardware.*", "--ignore", "mode")
    done = cli("check", SAMPLES / "colocate_async", "--baseline", tmp_path / "b", *options)
    assert done.code in (0, 1)
    assert re.search(r"differs from the baseline, as allowed: .*\bmode\b", done.out)


# -- the configuration ---------------------------------------------------------------------


def configured(path: Path, document: dict) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_configuration_says_what_matters(runs, baseline, tmp_path):
    wide = {"metrics": {"*": {"relative": 3.0, "absolute": 3.0}}, "baseline": str(baseline)}
    config = configured(tmp_path / "check.yaml", wide)
    assert cli("check", runs["slow"], "--config", config).code == 0


def test_a_logged_metric_is_gated_by_name(runs, baseline, tmp_path):
    config = configured(
        tmp_path / "check.yaml",
        {"metrics": {"*": {"gates": False}, "logged:timing_s/update_actor": {"gates": True}}},
    )
    done = cli("check", runs["slow"], "--baseline", baseline, "--config", config, "--json")
    failed = {m["name"] for m in done.json["metrics"] if m["verdict"] == "FAIL" and m["gates"]}
    assert (done.code, failed) == (1, {"logged:timing_s/update_actor"})


def test_an_acknowledged_change_passes_until_it_expires(runs, baseline, tmp_path):
    known = {"metric": "*", "reason": "twice the model", "until": "2999-01-01"}
    config = configured(tmp_path / "a.yaml", {"acknowledged": [known]})
    done = cli("check", runs["slow"], "--baseline", baseline, "--config", config)
    assert done.code == 0
    assert "FAIL (acknowledged)" in done.out
    assert "acknowledged until 2999-01-01: twice the model" in done.out
    config = configured(tmp_path / "b.yaml", {"acknowledged": [known | {"until": "2001-01-01"}]})
    done = cli("check", runs["slow"], "--baseline", baseline, "--config", config)
    assert done.code == 1
    assert "expired on 2001-01-01: twice the model" in done.out


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"alhpa": 0.1}, "alhpa: unknown key; did you mean `alpha`?"),
        ({"metrics": {"x": {"relativ": 1}}}, "metrics.x.relativ: unknown key; did you mean"),
        ({"alpha": 2}, "alpha: input should be less than 0.5, found 2"),
        ({"acknowledged": [{"metric": "x", "until": "2026-01-01"}]}, "acknowledged.0.reason"),
    ],
)
def test_a_wrong_configuration_is_named(runs, baseline, tmp_path, document, message):
    config = configured(tmp_path / "check.yaml", document)
    done = cli("check", runs["equal"], "--baseline", baseline, "--config", config)
    assert isinstance(done.error, ConfigError)
    assert message in done.err


# -- the store -----------------------------------------------------------------------------


def test_list_shows_the_latest_first(runs, baseline):
    cli("baseline", "add", runs["equal"], "--to", baseline, "--untrusted", "--note", "odd")
    done = cli("baseline", "list", baseline)
    lines = [line.split() for line in done.out.splitlines() if line.startswith("run")]
    assert [line[:2] for line in lines[1:]] == [["run2", "no"], ["run1", "yes"]]
    assert lines[1][-1] == "odd"
    assert "2 runs, 1 trusted" in done.out
    rows = cli("baseline", "list", baseline, "--json").json
    assert [row["name"] for row in rows] == ["run2", "run1"]
    assert rows[0]["step_time_s"] > 1


def test_a_name_that_is_taken_is_not_overwritten(runs, baseline):
    done = cli("baseline", "add", runs["first"], "--to", baseline)
    assert (done.code, "`run1` is in" in done.err) == (2, True)
    assert cli("baseline", "add", runs["first"], "--to", baseline, "--replace").code == 0
    assert cli("baseline", "add", runs["first"], "--to", baseline, "--name", "again").code == 0


def test_accepting_says_what_a_run_lacks(tmp_path):
    trace = gate_runs.write(tmp_path / "t", Kind(steps=3), 1)
    done = cli("baseline", "add", trace, "--to", tmp_path / "b")
    assert "it lacks steady windows: 3, and a check needs 4 by default" in done.out


def test_trust_and_drop(runs, baseline):
    cli("baseline", "trust", "run1", baseline, "--off")
    assert cli("baseline", "list", baseline, "--json").json[0]["trusted"] is False
    cli("baseline", "trust", "run1", baseline)
    assert cli("baseline", "list", baseline, "--json").json[0]["trusted"] is True
    assert cli("baseline", "drop", "run1", baseline).code == 0
    assert cli("baseline", "list", baseline, "--json").json == []


@pytest.mark.parametrize("action", ["trust", "drop"])
def test_a_name_that_is_not_there_is_answered_with_those_that_are(baseline, action):
    done = cli("baseline", action, "run7", baseline)
    assert (done.code, "(run1), found `run7`" in done.err) == (2, True)


def test_trusting_changes_one_line_of_the_file(runs, baseline):
    before = (baseline / "run1.json").read_text().splitlines()
    cli("baseline", "trust", "run1", baseline, "--off")
    after = (baseline / "run1.json").read_text().splitlines()
    assert len(before) == len(after) > 20
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_run_that_failed_is_not_accepted(tmp_path):
    trace = gate_runs.write(tmp_path / "t", Kind(steps=6), 1)
    update_manifest(trace, exit_code=1)
    done = cli("baseline", "add", trace, "--to", tmp_path / "b")
    assert (done.code, "found exit code 1" in done.err) == (2, True)
    assert not (tmp_path / "b").exists()


def test_an_fsspec_url_serves_as_well(runs):
    fsspec.filesystem("memory").store.clear()
    url = "memory://team/baselines"
    assert cli("baseline", "add", runs["first"], "--to", url).code == 0
    assert cli("check", runs["equal"], "--baseline", url).code == 0
    assert cli("check", runs["slow"], "--baseline", url).code == 1
    assert cli("baseline", "drop", "run1", url).code == 0
    assert cli("baseline", "list", url, "--json").json == []


# -- renderings ----------------------------------------------------------------------------


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


PAGE = (ROOT / "docs/check.md").read_text()
RESULTS = (CheckResult, MetricVerdict, Acceptance, Workload, Attribution, Contribution)


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


def test_annotations_are_on_one_line_each(runs, baseline, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    done = cli("check", runs["slow"], "--baseline", baseline, "--github")
    errors = [line for line in done.out.splitlines() if line.startswith("::error")]
    assert len(errors) == 3
    assert "%0Atrainer train.update_actor: " in errors[0]
    assert "-2" in errors[0]
    assert (tmp_path / "summary.md").read_text().count("### ❌") == 1


# -- the snippets for CI, run as their shell steps -----------------------------------------

BIN = sysconfig.get_path("scripts")


def shell(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    base = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env=base | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def action(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the steps of action.yml as the runner does; return exit code, outputs and log."""
    document = yaml.safe_load((ROOT / "action.yml").read_text())
    known = {name: str(item.get("default", "")) for name, item in document["inputs"].items()}
    assert inputs.keys() <= known.keys()
    values = known | inputs
    output, log, code = folder / "output", "", 0
    for step in document["runs"]["steps"]:
        condition = step.get("if")
        assert condition in (None, "inputs.install != ''")
        if condition and not values["install"]:
            continue
        environment = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: values[m[1]], text)
            for name, text in step["env"].items()
        }
        assert "${{" not in step["run"]
        environment |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(folder / "sum")}
        done = shell(step["run"], folder, environment)
        code, log = done.returncode, log + done.stdout + done.stderr
    lines = output.read_text().splitlines() if output.exists() else []
    return code, dict(line.split("=", 1) for line in lines), log


@pytest.mark.parametrize(
    ("run", "shadow", "code", "verdict"),
    [
        ("equal", "false", 0, "PASS"),
        ("slow", "false", 1, "FAIL"),
        ("slow", "true", 0, "FAIL"),
    ],
)
def test_the_github_action(runs, baseline, tmp_path, run, shadow, code, verdict):
    inputs = {"trace": str(runs[run]), "baseline": str(baseline), "shadow": shadow, "install": ""}
    found, outputs, log = action(tmp_path, **inputs)
    assert (found, outputs["verdict"]) == (code, verdict), log
    assert "### " in (tmp_path / "sum").read_text()
    names = {path.name for path in (tmp_path / outputs["reports"]).iterdir()}
    assert names == {"result.json", "junit.xml", "comment.md", "trend.html"}
    assert ("::error" in log) == (verdict == "FAIL" and shadow == "false")


def test_the_github_action_on_what_cannot_be_compared(runs, tmp_path):
    inputs = {"trace": str(runs["equal"]), "baseline": "nowhere", "install": ""}
    code, outputs, log = action(tmp_path, **inputs)
    assert (code, outputs["verdict"]) == (2, "ERROR")
    assert "::error title=rlinsight check%3A ERROR::" in log


def test_an_input_of_the_action_is_never_run_as_a_command(runs, tmp_path):
    inputs = {"trace": "x$(touch hacked)", "baseline": "`touch hacked`", "install": ""}
    assert action(tmp_path, **inputs)[0] == 2
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(("run", "code"), [("equal", 0), ("slow", 1)])
def test_the_gitlab_job(runs, baseline, tmp_path, run, code):
    job = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text())["rlinsight-check"]
    variables = {key: str(value) for key, value in job["variables"].items()} | {
        "RLINSIGHT_TRACE_DIR": str(runs[run]),
        "RLINSIGHT_BASELINE": str(baseline),
        "RLINSIGHT_INSTALL": "",
    }
    done = shell("\n".join([*job["before_script"], *job["script"]]), tmp_path, variables)
    assert done.returncode == code, done.stdout + done.stderr
    reports = job["artifacts"]["reports"]
    assert ET.parse(tmp_path / reports["junit"]).getroot()[0].get("failures") == str(3 * code)
    assert isinstance(json.loads((tmp_path / reports["codequality"]).read_text()), list)
