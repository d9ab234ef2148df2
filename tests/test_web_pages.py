"""Every page on every sample trace, without a browser: pages are functions of (run, query)."""

from __future__ import annotations

from io import BytesIO

import polars as pl
import pytest
from gating import gate_runs
from timelines import Timeline
from web_views import HOSTILE, MODES, as_json, by_id, figures, four_samples, links, text

from rlinsight.report.units import number, percent
from rlinsight.report.verdict import paragraph, sentences
from rlinsight.webapp import comparison as comparison_module
from rlinsight.webapp import pages, shell, urls
from rlinsight.webapp.app import create_app
from rlinsight.webapp.comparison import comparison, opened
from rlinsight.webapp.store import Store

OF_RUN = [page.name for page in pages.available() if page.of_run]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(four_samples(tmp_path_factory.mktemp("runs")))


def body(store, address):
    path, _, search = address.partition("?")
    return shell.view(store, path, urls.parsed(search)).body


@pytest.mark.parametrize("name", [page.name for page in pages.available()])
@pytest.mark.parametrize("mode", MODES)
def test_every_page_of_every_sample_can_be_sent(store, name, mode):
    view = shell.view(store, f"/{name}", {"run": mode, "runs": ",".join(MODES)})
    assert as_json(view.body)
    assert view.navigation
    assert "cannot be" not in text(view.body)


@pytest.mark.parametrize("mode", MODES)
def test_the_overview_says_the_verdict_and_the_key_figures(store, mode):
    report = store.run(mode).report
    said = text(body(store, f"/overview?run={mode}"))
    assert sentences(report)[0] in said
    assert number(report.throughput.tokens_per_s_per_device.value) in said
    for pool in report.pools.values():
        assert percent(pool.idle_ratio).removesuffix(" %") in said
    assert " ".join(sentences(report)) == paragraph(report)


def test_the_ledger_bar_has_every_state_of_the_pool(store):
    report = store.run("fully_async").report
    sent = str(as_json(body(store, "/overview?run=fully_async")))
    for state, spent in report.pools["rollouter"].ledger.items():
        assert (
            not spent
            or f"{state.rpartition('.')[2].replace('_', ' ')} · " in sent.replace("idle: ", "")
            or state.rpartition(".")[2].replace("_", " ") in sent
        )


def test_a_finding_leads_to_its_window_on_the_timeline(store):
    run = store.run("fully_async")
    longest = max(run.report.bubbles.largest, key=lambda bubble: bubble.device_seconds)
    start, end = run.seconds(longest.start_ns), run.seconds(longest.end_ns)
    assert urls.timeline(run.id, start, end) in links(body(store, "/overview?run=fully_async"))
    query = urls.parsed(urls.timeline(run.id, start, end).partition("?")[2])
    assert float(query["from"]) <= start < end <= float(query["to"])


def test_the_largest_bubble_comes_first_in_the_table(store):
    rows = by_id(body(store, "/overview?run=fully_async"), "bubbles-grid").rowData
    sizes = [row["device_seconds"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(rows) > 10


def test_the_query_chooses_the_token_from_which_lag_is_counted(store):
    first, last = (
        figures(body(store, f"/staleness?run=fully_async&token={end}"))[0]
        for end in ("first", "last")
    )
    report = store.run("fully_async").report
    assert list(first.data[0].x) == list(report.staleness.worst_token.counts)
    assert list(last.data[0].x) == list(report.staleness.last_token.counts)
    assert report.staleness.worst_token.counts != report.staleness.last_token.counts


def test_a_value_that_means_nothing_is_as_if_it_were_absent(store):
    plain, odd = (
        as_json(body(store, f"/staleness?run=sync{more}")) for more in ("", "&token=%3Cb%3E&x=1")
    )
    assert plain == odd


def test_lags_per_version_sum_to_those_of_the_whole_window(store):
    report = store.run("fully_async").report
    drawn = figures(body(store, "/staleness?run=fully_async"))[1]
    shares = [sum(values) for values in zip(*(bar.y for bar in drawn.data), strict=True)]
    assert shares == pytest.approx([1] * len(shares))
    assert {bar.name for bar in drawn.data} == {
        f"lag {lag}" for lag in report.staleness.worst_token.counts
    }


def test_the_length_histogram_has_every_sample(store):
    lengths = store.run("sync").report.lengths
    drawn = figures(body(store, "/lengths?run=sync"))[0]
    assert sum(drawn.data[0].y) == lengths.samples


def test_the_comparison_shows_changes_against_the_first_run(store):
    query = {"runs": "sync,fully_async"}
    said = text(body(store, "/compare?runs=sync,fully_async"))
    found = comparison(opened(store, query)[0], query)
    rate = found.row("tokens_per_s_per_device").cells[1]
    assert f"{rate.change / rate.reference * 100:+.1f} %" in said
    assert "reward volatility" in said


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """Three runs that vary one number, from which on the wait stays."""
    folder = tmp_path_factory.mktemp("varied")
    for i, (staleness, wait) in enumerate(((0.3, 1.0), (0.5, 0.3), (0.7, 0.3))):
        kind = gate_runs.Kind(noise=0.01, steps=14, slow={"wait_samples": wait})
        config = {"async_training": {"staleness_threshold": staleness}}
        gate_runs.write(folder / f"s{i}", kind, seed=i, config=config)
    return Store(folder)


def test_the_comparison_draws_the_response_and_its_plateau(varied):
    shown = body(varied, "/compare?runs=s0,s1,s2")
    assert "wait.trainer over staleness_threshold: plateau from 0.5" in text(shown)
    drawn = next(one for one in figures(shown) if one.layout.yaxis.title.text == "wait.trainer")
    assert list(drawn.data[0].x) == [0.3, 0.5, 0.7]
    assert (drawn.layout.shapes[0].x0, drawn.layout.shapes[0].x1) == (0.5, 0.7)


def test_runs_that_are_no_series_say_why(store):
    said = text(body(store, "/compare?runs=sync,fully_async"))
    assert "Not a series of one variable: runs of different modes" in said


@pytest.mark.parametrize("name", ["comparison", "response", "configuration"])
def test_tables_of_a_comparison_are_downloaded(varied, name):
    client = create_app(varied.root).server.test_client()
    csv = client.get(f"/download/{name}.csv?runs=s0,s1,s2")
    parquet = client.get(f"/download/{name}.parquet?runs=s0,s1,s2")
    frame = pl.read_parquet(BytesIO(parquet.data))
    assert csv.status_code == 200
    assert frame.height == len(csv.text.splitlines()) - 1 > 0
    assert client.get(f"/download/{name}.csv?runs=s0").status_code == 404


def test_the_comparison_lists_where_configurations_differ(store):
    rows = by_id(body(store, "/compare?runs=sync,colocate_async"), "config-grid").rowData
    modes = next(row for row in rows if row["key"] == "trainer.v1.trainer_mode")
    assert (modes["run0"], modes["run1"]) == ("sync", "colocate_async")
    assert all(row["run0"] != row["run1"] for row in rows)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("sync_step=1000000000", "expected `sync_step` of 1 to 8, found `1000000000`"),
        ("sync_step=many", "expected `sync_step` of 1 to 8, found `many`"),
        ("mini_batch=nan", "expected `mini_batch` of 1 to 16, found `nan`"),
        ("partial_rollout=maybe", "expected `partial_rollout` of on or off, found `maybe`"),
    ],
)
def test_a_knob_that_cannot_stand_there_is_said_to_be_left(store, query, says):
    said = text(body(store, f"/advisor?run=fully_async&{query}"))
    assert f"Left as it was: {says}." in said
    taken = text(body(store, "/advisor?run=fully_async&sync_step=4&partial_rollout=off"))
    assert "Left as it was" not in taken


def test_a_comparison_says_which_runs_it_did_not_find(store):
    said = text(body(store, "/compare?runs=sync,bogus,fully_async,<b>x</b>"))
    assert "Left out: no run `bogus`, `<b>x</b>` in the served folder." in said
    assert "reward volatility" in said  # the two that are there are compared
    assert "Left out" not in text(body(store, "/compare?runs=sync,fully_async"))


def test_many_and_long_unknown_runs_are_one_sentence(store):
    many = ",".join(f"no{i}" for i in range(500))
    said = text(body(store, f"/compare?runs={many},sync"))
    assert "`no4` and 495 more in the served folder." in said
    assert "Choose two runs" in said
    said = text(body(store, "/compare?runs=" + "x" * 9000))
    assert "x…x" in said
    assert len(said) < 1000


def test_a_known_run_behind_many_unknown_ones_is_compared(store):
    many = ",".join(f"no{i}" for i in range(20))
    said = text(body(store, f"/compare?runs={many},sync,fully_async"))
    assert "reward volatility" in said


def test_runs_beyond_the_most_are_counted(store, monkeypatch):
    monkeypatch.setattr(comparison_module, "MOST", 1)
    said = text(body(store, "/compare?runs=sync,fully_async,bogus"))
    assert "Left out: 1 of 2 runs; at most 1 are compared." in said
    assert "no run `bogus`" in said


def test_the_list_of_runs_says_what_it_could_not_select(store):
    assert "Not selected: no run `bogus` in the" in text(body(store, "/?runs=sync,bogus"))


def test_a_page_of_one_run_names_the_run_that_is_not_there(store):
    assert "There is no run `bogus` in the" in text(body(store, "/overview?run=bogus"))


def test_one_run_is_not_a_comparison(store):
    assert "Choose two runs" in text(body(store, "/compare?runs=sync"))


def test_the_list_of_runs_has_all_with_their_figures(store):
    rows = by_id(body(store, "/"), "runs-grid").rowData
    assert [row["run"] for row in rows] == sorted(MODES)
    for row in rows:
        report = store.run(row["id"]).report
        assert row["tokens_per_s_per_device"] == report.throughput.tokens_per_s_per_device.value
        assert row["trainer_idle_ratio"] == report.pools["trainer"].idle_ratio
        assert row["run_href"] == f"/overview?run={row['id']}"


def test_selected_runs_are_part_of_the_address(store):
    shown = body(store, "/?runs=sync,fully_async,nonsense")
    assert [row["id"] for row in by_id(shown, "runs-grid").selectedRows] == ["fully_async", "sync"]
    assert by_id(shown, "compare-selected").href == "/compare?runs=sync,fully_async"


@pytest.mark.parametrize("name", OF_RUN)
def test_a_page_without_a_run_offers_the_runs(store, name):
    view = shell.view(store, f"/{name}", {"run": "../../etc/passwd"})
    assert "Choose a run" in text(view.body)
    assert f"/{name}?run=sync" in links(view.body)


def test_an_unknown_page_says_so(store):
    assert "no such page" in text(shell.view(store, "/<b>nothing</b>", {}).body)


def test_every_page_has_a_title_of_its_own(store):
    titles = [shell.view(store, f"/{name}", {"run": "sync"}).title for name in OF_RUN]
    assert len(set(titles)) == len(titles)
    assert all("sync" in title for title in titles)


def test_an_empty_folder_says_what_to_do(tmp_path):
    assert "rlinsight run" in text(shell.view(Store(tmp_path), "/", {}).body)


def test_a_broken_trace_is_a_row_with_its_reason(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text('{"schema_version": 99}')
    Timeline(tmp_path / "good").open()
    rows = by_id(shell.view(Store(tmp_path), "/", {}).body, "runs-grid").rowData
    broken, good = rows
    assert broken["state"] == "Cannot be read"
    assert "99" in broken["verdict"]
    assert good["run"] == "good"


def test_a_broken_trace_says_why_on_its_pages(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text('{"schema_version": 99}')
    store = Store(tmp_path)
    for name in OF_RUN:
        if pages.find(name).refreshes:
            view = shell.view(store, f"/{name}", {"run": "broken"})
            assert "cannot be shown" in text(view.body)
            assert "Cannot be read" in text(view.run_bar)


def test_a_trace_without_rows_does_not_break_a_page(tmp_path):
    Timeline(tmp_path / "empty").open()
    store = Store(tmp_path)
    for name in OF_RUN:
        view = shell.view(store, f"/{name}", {"run": "empty"})
        assert as_json(view.body)
        assert "by a defect of" not in text(view.body)


def hostile_trace(folder, *names):
    """A run whose activities, lanes, samples, metrics and settings have these names."""
    t = Timeline(folder / "trace", config={"key": names[0]})
    for step, start in ((1, 0), (2, 10), (3, 20)):
        t.step(step, start, start + 10)
        t.span("trainer", "wait_samples", start + 2, start + 4)
        t.span("trainer", "update_actor", start + 4, start + 10)
        for i, name in enumerate(names):
            t.span("trainer", name, start, start + 2, step=step)
            t.span("rollouter", "paused", start, start + 1, attrs={"reason": name})
            uid = f"{name}{step}"
            t.trained(uid, start + 4, (60, 140 + i), step, version_start=0, trained_version=0)
    t.gen(0, 30, response_tokens=280, prompt_tokens=120)
    for name in names:
        t.gen(0, 30, lane=name, response_tokens=280, prompt_tokens=120)
        t.writer.metric(f"val-core/{name}", 0.5, step=1, ts_ns=1)
    t.writer.metric("critic/rewards/mean", 0.5, step=1, ts_ns=1)
    t.open()


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_plotly_gets_no_markup_of_a_trace(tmp_path, name):
    hostile_trace(tmp_path, name)
    store = Store(tmp_path)
    for page in OF_RUN:
        shown = shell.view(store, f"/{page}", {"run": "trace"}).body
        assert "by a defect of" not in text(shown)
        for drawn in figures(shown):
            sent = drawn.to_json()
            assert "<img" not in sent
            assert "<script" not in sent
            assert "%{customdata} $x" not in sent


def test_a_run_that_stands_still_shows_its_alarm_everywhere(tmp_path):
    t = Timeline(tmp_path / "stuck")
    for step in range(1, 5):
        t.step(step, step * 10, step * 10 + 10)
        t.span("trainer", "update_actor", step * 10 + 2, step * 10 + 10)
    t.span("trainer", "update_actor", 50, None)
    t.gen(0, 5000)
    t.open()
    store = Store(tmp_path)
    assert store.run("stuck").report.verdict.alarm
    for page in ("overview", "staleness"):
        view = shell.view(store, f"/{page}", {"run": "stuck"})
        assert "update_actor" in text(view.banner)
        assert any("/timeline" in link for link in links(view.banner))
    assert "ALARM" in text(shell.view(store, "/overview", {"run": "stuck"}).body)
