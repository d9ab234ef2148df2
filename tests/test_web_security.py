"""Who is answered, what is served, and what a page may load."""

from __future__ import annotations

import io

import polars as pl
import pytest
from timelines import Timeline
from web_views import HOSTILE, SAMPLES

from rlinsight.webapp.app import create_app
from rlinsight.webapp.tables import TABLES

TOKEN = "s3cret-token"


@pytest.fixture(scope="module")
def open_app():
    return create_app(SAMPLES).server


@pytest.fixture(scope="module")
def guarded():
    return create_app(SAMPLES, TOKEN).server


def test_without_a_token_only_this_machine_is_answered(open_app):
    client = open_app.test_client()
    for host in ("127.0.0.1:8050", "localhost", "localhost:1", "[::1]:8050"):
        assert client.get("/", headers={"Host": host}).status_code == 200
    for host in ("example.com", "127.0.0.1.example.com", "10.0.0.1:8050", "", "localhost.evil:80"):
        assert client.get("/", headers={"Host": host}).status_code in (400, 403)


ADDRESSES = (
    "/",
    "/overview?run=sync",
    "/_dash-layout",
    "/_dash-dependencies",
    "/stamp?path=/&search=",
    "/download/runs.csv",
    "/assets/shell.js",
    "/timeline/meta?run=sync",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_answered_without_the_token(guarded, address):
    client, more = guarded.test_client(), "&" if "?" in address else "?"
    assert client.get(address).status_code == 403
    assert client.get(f"{address}{more}token={TOKEN}x").status_code == 403


def test_callbacks_need_the_token_too(guarded):
    assert guarded.test_client().post("/_dash-update-component", json={}).status_code == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(guarded):
    client = guarded.test_client()
    answer = client.get(f"/overview?run=sync&token={TOKEN}", headers={"Host": "node7:8050"})
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/overview?run=sync"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/", headers={"Host": "node7:8050"}).status_code == 200


def test_the_redirect_never_leads_elsewhere(guarded):
    answer = guarded.test_client().get(f"//evil.example/x?token={TOKEN}")
    assert answer.headers["Location"].startswith("/")
    assert not answer.headers["Location"].startswith("//")


def test_a_page_may_load_only_from_here(open_app):
    policy = open_app.test_client().get("/").headers["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'self'"
    assert "unsafe-inline" not in rules["script-src"]
    assert "unsafe-eval" not in rules["script-src"]
    assert "http" not in policy
    assert rules["frame-ancestors"] == "'none'"


def test_no_address_outside_is_named_in_the_page(open_app):
    page = open_app.test_client().get("/").get_data(as_text=True)
    assert 'src="http' not in page
    assert 'href="http' not in page
    assert "debug" not in page.lower() or '"debug":true' not in page.lower()


def test_the_tools_of_developers_are_off(open_app):
    client = open_app.test_client()
    assert client.get("/_reload-hash").status_code in (200, 404)
    assert client.get("/_dash-error").status_code == 200  # a page address like any other
    assert b"Traceback" not in client.get("/stamp?path=%00&search=%00").data


OUTSIDE = ("..", "../..", "/etc/passwd", "%2e%2e%2f", "..%2f..%2fetc", "sync/../../etc", "\x00")


@pytest.mark.parametrize("run", OUTSIDE)
def test_no_parameter_reads_outside_the_folder(open_app, run):
    client = open_app.test_client()
    for name in TABLES:
        query = {"run": run, "runs": run}
        answer = client.get(f"/download/{name}.csv", query_string=query)
        assert answer.status_code == (200 if TABLES[name].of == "folder" else 404)
        assert b"root:" not in answer.data
    for path in (f"/download/{run}.csv", f"/assets/{run}", f"/download/runs.{run}"):
        assert client.get(path).status_code in (200, 308, 400, 404)
        assert b"root:" not in client.get(path, follow_redirects=True).data


def test_tables_download_as_csv_and_parquet_with_the_same_rows(open_app):
    client = open_app.test_client()
    for name in TABLES:
        csv, parquet = (
            client.get(f"/download/{name}.{kind}?run=fully_async&runs=fully_async,sync")
            for kind in ("csv", "parquet")
        )
        frame = pl.read_parquet(io.BytesIO(parquet.data))
        assert csv.status_code == parquet.status_code == 200
        assert csv.headers["Content-Disposition"] == f"attachment; filename={name}.csv"
        if frame.width:
            assert pl.read_csv(io.BytesIO(csv.data)).shape == frame.shape


def test_a_table_has_units_in_its_names_and_full_precision(open_app):
    data = open_app.test_client().get("/download/bubbles.parquet?run=fully_async").data
    frame = pl.read_parquet(io.BytesIO(data))
    assert {"from_s", "duration_s", "device_seconds", "share_of_pool"} <= set(frame.columns)
    assert frame["duration_s"].dtype == pl.Float64


def test_a_spreadsheet_runs_no_formula_of_a_trace(tmp_path):
    for i, name in enumerate(("=1+1", "@cmd", "+1", *HOSTILE.values())):
        t = Timeline(tmp_path / f"r{i}", config={"actor_rollout_ref": {"model": {"path": name}}})
        t.step(1, 0, 1)
        t.open()
    csv = create_app(tmp_path).server.test_client().get("/download/runs.csv").data
    models = pl.read_csv(io.BytesIO(csv))["model"].to_list()
    assert models[0] == "'=1+1"
    assert not any(model[0] in "=+-@" for model in models)
