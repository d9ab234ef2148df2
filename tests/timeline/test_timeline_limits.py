"""A timeline with times that cannot be right, asked for windows that cannot be meant."""

from __future__ import annotations

import pytest
from timelines import Timeline

from rlinsight.webapp.app import create_app

YEAR_S = 365.25 * 86400


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def get(last_s: float, query: str = ""):
        timeline = Timeline(tmp_path / "runs" / "run")
        timeline.span("trainer", "update_actor", 0, 10)
        timeline.span("trainer", "update_actor", 10, last_s)
        timeline.writer.close()
        client = create_app(tmp_path / "runs").server.test_client()
        return client.get(f"/timeline/window?run=run{query}")

    return get


def test_a_run_of_years_is_drawn(asked):
    assert asked(31 * YEAR_S).status_code == 200


def test_a_run_of_centuries_says_that_a_time_is_wrong(asked):
    answer = asked(285 * YEAR_S)
    assert answer.status_code == 422
    assert "285.0 years: one of these times is wrong" in answer.json["error"]


@pytest.mark.parametrize(
    "query", ["&from=-1e12&to=1e12", "&from=0&to=9e9", "&from=nan", "&px=1e12"]
)
def test_a_window_beyond_all_times_is_refused(asked, query):
    answer = asked(20, query)
    assert answer.status_code == 400
    assert answer.json["error"].startswith("expected a number for ")


def test_the_widest_window_is_answered(asked):
    assert asked(20, "&from=-1e9&to=1e9").status_code == 200
