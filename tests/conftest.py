"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Time is asserted in benchmarks, never here: a slow machine must not fail a test.
settings.register_profile("rlinsight", deadline=None)
settings.load_profile("rlinsight")
