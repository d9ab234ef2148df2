"""What all tests share."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# Time is asserted in benchmarks, never here: a slow machine must not fail a test.
settings.register_profile("rlinsight", deadline=None)
settings.load_profile("rlinsight")

# A shell starts what it runs in the background without Ctrl-C, and so would we our processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of a file together when several processes share the work."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
