"""Figures of benchmarks, gated like runs: absolute times as ratios taken within one run."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import pytest
from gating import ROOT, cli

from rlinsight.analyzers.gate.figures import figures_observation
from rlinsight.analyzers.gate.metrics import metrics


def figure(name: str, value: float | None, unit: str, **bounds) -> dict:
    return {"name": name, "value": value, "unit": unit, **bounds}


def document(yardstick_s: float | None = 0.1, span_ns: float = 300.0) -> dict:
    return {
        "benchmark": "recording",
        "yardstick_s": yardstick_s,
        "figures": [
            figure("span", span_ns, "ns", at_most=1000),
            figure("sustained", 6e5 * 300 / span_ns, "spans/s", at_least=5e5),
            figure("on disk", 20, "bytes/span", at_most=24),
            figure("peer", 4000, "ns"),
        ],
    }


def scalars(found: dict) -> dict:
    return figures_observation([found]).scalars


def test_times_and_rates_are_taken_per_yardstick():
    found = scalars(document())
    assert found["recording: span"].value == pytest.approx(3e-6)
    assert found["recording: span"].unit == "yardsticks"
    assert found["recording: sustained"].value == pytest.approx(6e4)
    assert found["recording: on disk"].value == 20


def test_a_machine_of_half_the_speed_finds_the_same():
    fast, slow = scalars(document()), scalars(document(yardstick_s=0.2, span_ns=600))
    for name in ("recording: span", "recording: sustained"):
        assert slow[name].value == pytest.approx(fast[name].value)


def test_bounds_say_what_is_better_and_without_one_a_figure_is_watched():
    found = scalars(document())
    assert (found["recording: span"].better, found["recording: span"].gates) == ("lower", True)
    assert found["recording: sustained"].better == "higher"
    assert found["recording: peer"].gates is False


def test_without_a_yardstick_absolute_times_do_not_gate():
    found = scalars(document(yardstick_s=None))
    assert (found["recording: span"].value, found["recording: span"].gates) == (300, False)
    assert found["recording: on disk"].gates is True


@pytest.mark.parametrize(
    "broken", [{"figures": []}, {"benchmark": "x", "figures": [{"name": "a"}]}]
)
def test_what_is_no_figure_is_refused(broken):
    with pytest.raises(ValueError, match="expected"):
        figures_observation([broken])


@pytest.fixture
def baseline(tmp_path):
    return folder(tmp_path / "old", document()), tmp_path / "baselines"


def folder(path, found: dict):
    path.mkdir()
    (path / "recording.json").write_text(json.dumps(found))
    return path


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"yardstick_s": 0.2, "span_ns": 610}, 0, "PASS"),
        ({"span_ns": 900}, 1, "FAIL"),
        ({"span_ns": 100}, 0, "PASS"),
    ],
    ids=["another machine", "slower", "faster"],
)
def test_figures_are_checked_like_a_run(tmp_path, baseline, changes, code, verdict):
    old, store = baseline
    assert cli("baseline", "add", old, "--to", store, "--name", "first").code == 0
    done = cli(
        "check", folder(tmp_path / "new", document(**changes)), "--baseline", store, "--json"
    )
    assert (done.code, done.json["verdict"]) == (code, verdict)


def test_a_figure_that_is_gone_is_an_error(tmp_path, baseline):
    old, store = baseline
    cli("baseline", "add", old, "--to", store)
    found = document()
    del found["figures"][0]
    done = cli("check", folder(tmp_path / "new", found), "--baseline", store, "--json")
    assert (done.code, done.json["verdict"]) == (2, "ERROR")


@pytest.mark.parametrize(
    "changes",
    [{"yardstick_s": None}, {"unit": "us"}],
    ids=["the yardstick was lost", "another unit"],
)
def test_figures_of_different_units_are_not_compared(tmp_path, changes):
    """300 ns beside 3e-6 yardsticks, or beside 300 us, would pass or fail by their units alone."""
    changes = {"yardstick_s": 0.1, "unit": "ns", **changes}
    old = document(yardstick_s=0.1 if changes["yardstick_s"] is None else None)
    new = document(yardstick_s=None)
    new["figures"][0]["unit"] = changes["unit"]
    store = tmp_path / "baselines"
    cli("baseline", "add", folder(tmp_path / "old", old), "--to", store)
    done = cli("check", folder(tmp_path / "new", new), "--baseline", store, "--json")
    assert (done.code, done.json["verdict"]) == (2, "ERROR")
    span = next(row for row in done.json["metrics"] if row["name"] == "recording: span")
    assert span["change"] is None
    assert f"in `{changes['unit']}`" in span["reason"]


def test_a_figure_that_is_no_number_says_so():
    found = metrics(figures_observation([document(span_ns=math.nan)]))
    assert found["recording: span"].why == "it is not a finite number"


def test_our_benchmarks_print_what_the_gate_reads(tmp_path):
    """A real benchmark, made small, into the folder that `make bench` checks."""
    command = [sys.executable, str(ROOT / "benchmarks/gate.py"), "--pairs", "1"]
    environment = {"BENCH_FIGURES": str(tmp_path / "bench"), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, env=environment, capture_output=True, check=False)
    assert cli("baseline", "add", tmp_path / "bench", "--to", tmp_path / "baselines").code == 0
    config = ROOT / "benchmarks/check.yaml"
    done = cli(
        "check", tmp_path / "bench", "--baseline", tmp_path / "baselines", "--config", config
    )
    assert done.code == 0, done.out
    assert "gate: false alarms" in done.out


def test_make_bench_checks_its_figures():
    rule = re.search(r"^bench:.*?(?=^\S)", (ROOT / "Makefile").read_text(), re.M | re.S)
    assert "check $(BENCH_FIGURES) --baseline benchmarks/baselines" in rule[0]
    assert list((ROOT / "benchmarks/baselines").glob("*.json")), "no bench run was accepted"
