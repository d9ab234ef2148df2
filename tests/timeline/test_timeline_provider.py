"""Indexes are built once per state of a trace, shared, and kept apart from the user's data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import flask
import pytest
from timelines import S, Timeline

from rlinsight.errors import RlinsightError
from rlinsight.webapp.store import Store
from rlinsight.webapp.timeline import build as building
from rlinsight.webapp.timeline import provider, routes
from rlinsight.webapp.timeline.provider import Indexes, IndexingError


@pytest.fixture
def store(tmp_path) -> Store:
    line = Timeline(tmp_path / "traces" / "run")
    line.step(0, 0, 5)
    line.gen(0, 5)
    line.open()
    return Store(tmp_path / "traces")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def built(monkeypatch) -> list[str]:
    """Names of the traces that were indexed in this process."""
    found: list[str] = []
    real = building.build

    def counted(trace):
        found.append(trace.path)
        return real(trace)

    monkeypatch.setattr(building, "build", counted)
    return found


def test_one_index_serves_everybody(store, cache, built):
    indexes = Indexes(cache)
    threads = [threading.Thread(target=indexes.get, args=(store.run("run"),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_the_next_server_finds_it_on_disk(store, cache, built):
    Indexes(cache).get(store.run("run"))
    again = Indexes(cache).get(store.run("run"))
    assert len(built) == 1
    assert again.names.items > 0
    assert {path.parent for path in cache.rglob("*.npy")} == set(cache.iterdir())


def test_nothing_is_written_into_the_trace(store, cache, tmp_path):
    before = sorted((tmp_path / "traces").rglob("*"))
    Indexes(cache).get(store.run("run"))
    assert sorted((tmp_path / "traces").rglob("*")) == before


def test_a_changed_trace_has_a_new_index_and_the_old_one_leaves(
    store, cache, tmp_path, monkeypatch
):
    monkeypatch.setattr(provider, "AGAIN_S", 0.0)
    monkeypatch.setattr(provider, "AGAIN_TIMES", 0.0)
    indexes = Indexes(cache)
    assert indexes.get(store.run("run")).names.extent_ns == 5 * S
    again = Timeline(tmp_path / "traces" / "run")
    again.step(1, 5, 9)
    again.open()
    later = Store(store.root).run("run")
    assert indexes.get(later).names.extent_ns == 9 * S
    assert len(list(cache.iterdir())) == 1


def test_a_growing_trace_is_not_indexed_at_every_request(store, cache, tmp_path, built):
    indexes = Indexes(cache)
    indexes.get(store.run("run"))
    again = Timeline(tmp_path / "traces" / "run")
    again.step(1, 5, 9)
    again.open()
    assert indexes.get(Store(store.root).run("run")).names.extent_ns == 5 * S
    assert len(built) == 1


def test_a_cache_that_cannot_be_written_is_done_without(store, tmp_path):
    (tmp_path / "file").write_text("")
    assert Indexes(tmp_path / "file" / "cache").get(store.run("run")).names.items > 0


def test_a_damaged_index_is_built_anew(store, cache, built):
    Indexes(cache).get(store.run("run"))
    for path in cache.rglob("start.npy"):
        path.write_bytes(b"damaged")
    assert Indexes(cache).get(store.run("run")).names.items > 0
    assert len(built) == 2


def test_a_large_trace_is_indexed_by_a_process_of_its_own(store, cache, built):
    indexes = Indexes(cache, small_bytes=0)
    with pytest.raises(IndexingError, match="being indexed"):
        indexes.get(store.run("run"))
    assert _eventually(lambda: indexes.get(store.run("run"))).names.items > 0
    assert built == []


def test_a_trace_that_cannot_be_indexed_says_why(store, cache, monkeypatch):
    monkeypatch.setattr(provider.sys, "executable", "/bin/false")
    indexes = Indexes(cache, small_bytes=0)
    with pytest.raises(RlinsightError, match="cannot be indexed"):
        _eventually(lambda: indexes.get(store.run("run")))


def _eventually(get):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            return get()
        except IndexingError:
            time.sleep(0.05)
    raise AssertionError("the index was never there")


def test_the_cache_leaves_room(cache, monkeypatch):
    monkeypatch.setattr(provider, "MOST_BYTES", 250)
    for age, name in enumerate(("new", "older", "oldest")):
        (cache / f"{name}-1").mkdir(parents=True)
        (cache / f"{name}-1" / "start.npy").write_bytes(bytes(100))
        now = time.time() - age * 100
        provider.os.utime(cache / f"{name}-1", (now, now))
    provider._prune(cache, keep=cache / "new-1")
    assert sorted(path.name for path in cache.iterdir()) == ["new-1", "older-1"]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert provider.cache_folder() == tmp_path / "rlinsight" / "timeline"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert provider.cache_folder().is_absolute()


# -- endpoints ----------------------------------------------------------------------------


@pytest.fixture
def client(store, cache) -> Iterator[flask.testing.FlaskClient]:
    server = flask.Flask("test")
    routes.register(server, store, Indexes(cache))
    with server.test_client() as made:
        yield made


@pytest.mark.parametrize(
    "path", ["meta", "window", "detail?lane=0&t=1", "find?step=0", "table?lanes=0-9", "export"]
)
def test_every_endpoint_answers(client, path):
    separator = "&" if "?" in path else "?"
    response = client.get(f"/timeline/{path}{separator}run=run")
    assert response.status_code == 200
    assert len(response.data) > 2


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("window?run=../../etc", 404),
        ("window", 404),
        ("window?run=run&px=wide", 400),
        ("detail?run=run&lane=999", 400),
        ("find?run=run", 400),
    ],
)
def test_what_cannot_be_answered_is_explained(client, path, status):
    response = client.get(f"/timeline/{path}")
    assert response.status_code == status
    assert response.json["error"]


def test_a_large_answer_is_compressed_where_that_is_understood(client, monkeypatch):
    monkeypatch.setattr(routes, "_COMPRESSED_FROM", 1)
    plain = client.get("/timeline/meta?run=run")
    packed = client.get("/timeline/meta?run=run", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.data) < len(plain.data)
