"""`rlinsight serve`: what it listens on, what it prints, and how it ends."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest
from web_views import SAMPLES

CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"


def run(*arguments):
    command = [CLI, "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture
def started():
    running = []

    def start(*arguments):
        command = [CLI, "serve", SAMPLES, "--no-open", *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        running.append(process)
        line = process.stdout.readline()
        return process, re.search(r"http://([^/:]+):(\d+)/(\S*)", line)

    yield start
    for process in running:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def status(port, path, **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_it_listens_on_this_machine_and_ends_quietly(started):
    process, address = started("--port", str(free_port()))
    assert address[1] == "127.0.0.1"
    assert address[3] == ""
    assert status(int(address[2]), "/") == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err


def test_another_address_needs_a_token_and_warns(started):
    process, address = started("--host", "0.0.0.0", "--port", str(free_port()))
    port, token = int(address[2]), address[3].removeprefix("?token=")
    assert len(token) > 16
    assert status(port, "/", Host="node7") == 403
    assert status(port, f"/?token={token}", Host="node7") == 302
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "warning: whoever reaches this address and has the token" in err


def test_a_taken_port_is_named(started):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = run(SAMPLES, "--no-open", "--port", str(taken.getsockname()[1]))
    assert found.returncode == 2
    assert "cannot listen on 127.0.0.1 port" in found.stderr


def test_a_view_is_written_without_serving(tmp_path):
    place = tmp_path / "view.html"
    found = run(SAMPLES, "--get", "/lengths?run=sync", "-o", place)
    assert (found.returncode, found.stdout) == (0, f"wrote {place}\nnext: open {place}\n")
    assert (tmp_path / "view.html").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "expected a folder of traces, found nothing: `nowhere`"),
        ((SAMPLES, "--get", "/"), "expected both --get and --output"),
        ((SAMPLES, "--get", "/", "-o", "view.pdf"), "ends in .html or .png"),
        ((SAMPLES, "--get", "/overwiew?run=sync", "-o", "no.html"), "did you mean `/overview`?"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments, said):
    found = run(*arguments)
    assert found.returncode == 2
    assert said in found.stderr
    assert len(found.stderr.splitlines()) == 1
