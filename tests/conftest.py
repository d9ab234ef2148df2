"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Time is asserted in benchmarks, never here: a slow machine must not fail a test.
settings.register_profile("rlinsight", deadline=None)
settings.load_profile("rlinsight")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of a file together when several processes share the work."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
