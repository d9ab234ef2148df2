"""Preflight as a whole: all problems at once, for managed and wrapped runs, without verl too."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from preflight_facts import ACTOR, facts

from rlinsight.errors import PreflightError
from rlinsight.runs import preflight
from rlinsight.runs.plan import managed, wrapped
from rlinsight.runs.profile import parse


def test_all_problems_come_at_once(tmp_path):
    config = parse(
        {
            "mode": "separate_async",
            "model": "/nope",
            "data": {"train": "/nope/t", "val": "/nope/v"},
            "resources": {"nodes": 9, "rollout": {}},
            "overrides": {"data.train_batch_size": 30, f"{ACTOR}.ppo_mini_batch_size": 8},
        }
    )
    plan = managed(config, run_id="r", trace=tmp_path / "t")
    with pytest.raises(PreflightError) as caught:
        preflight.require(preflight.findings(preflight.facts_of(config, plan)))
    text = str(caught.value)
    assert "the run was not started, " in text
    for check in ("nodes", "sync cycle", "files", "devices"):
        assert f"\n  {check}: " in text


def test_a_misspelt_override_is_a_finding_not_a_traceback(tmp_path):
    config = parse(
        {"mode": "sync", "model": "a/b", "data": "example", "overrides": {"data.train_batch": 1}}
    )
    plan = managed(config, run_id="r", trace=tmp_path / "t")
    found = preflight.findings(preflight.facts_of(config, plan))
    message = next(f.message for f in found if f.check == "overrides")
    assert "overrides.data.train_batch: verl has no such key" in message


def test_a_wrapped_command_is_not_held_to_the_rules_of_a_managed_run(tmp_path):
    config = facts(trainer=(1, 64), model="/nope").config
    plan = wrapped(config, [sys.executable], run_id="r", trace=tmp_path / "t")
    assert preflight.findings(preflight.facts_of(config, plan)) == []


def test_without_verl_the_check_says_so_and_the_rest_still_runs(tmp_path):
    program = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        sys.modules["verl"] = None
        from rlinsight.runs import preflight, settings
        from rlinsight.runs.plan import managed
        from rlinsight.runs.profile import parse
        settings.importlib.util.find_spec = lambda name: None
        config = parse({{"mode": "sync", "model": "/nope", "data": "example"}})
        plan = managed(config, run_id="r", trace=Path({str(tmp_path / "t")!r}))
        for f in preflight.findings(preflight.facts_of(config, plan)):
            print(f.check, f.message)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "packages not installed: verl, ray, vllm" in done.stdout
    assert "files model `/nope`" in done.stdout
