"""`rlinsight check` as a user would call it: exit codes, what is compared and the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from gating import SAMPLES, cli

from rlinsight.errors import BaselineError, ConfigError

MODES = ("sync", "colocate_async", "separate_async", "fully_async")


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


def test_a_misspelt_key_is_no_permission(tmp_path):
    cli("baseline", "add", SAMPLES / "sync", "--to", tmp_path / "b")
    check = ("check", SAMPLES / "sync", "--baseline", tmp_path / "b", "--ignore")
    done = cli(*check, "versions.vrl")
    assert (done.code, type(done.error)) == (2, ConfigError)
    assert "did you mean `versions.verl`?" in done.err
    for possible in ("versions.*", "versions.nvidia_driver", "config.data.train_batch_size"):
        assert cli(*check, possible).code == 0


# -- the configuration ---------------------------------------------------------------------


def configured(path: Path, document: dict) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_configuration_says_what_matters(runs, baseline, tmp_path):
    wide = {"metrics": {"*": {"relative": 3.0, "absolute": 3.0}}, "baseline": str(baseline)}
    config = configured(tmp_path / "check.yaml", wide)
    assert cli("check", runs["slow"], "--config", config).code == 0


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tokens_per_s_per_devise", "; did you mean `tokens_per_s_per_device`?"),
        ("logged:timing_s/update_acter", "; did you mean `logged:timing_s/update_actor`?"),
        ("idel.*", ""),
    ],
)
def test_a_misspelt_metric_is_no_setting(runs, baseline, tmp_path, name, meant):
    config = configured(tmp_path / "check.yaml", {"metrics": {name: {"relative": 0.01}}})
    done = cli("check", runs["equal"], "--baseline", baseline, "--config", config)
    assert (done.code, type(done.error)) == (2, ConfigError)
    assert (
        f"`{name}` of the configuration is no metric of this run or its history{meant}" in done.err
    )


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
