"""What polars' allocator does with freed memory while tables of millions of rows are analyzed.

By default it gives freed pages back at once, and the next column of the same size is zeroed by
the kernel anew: a fifth of the processor time of a large analysis. Kept for a few seconds they
are used again; the peak rises by about a quarter (measured with `benchmarks/analyze.py`).
"""

from __future__ import annotations

import os
import sys
from typing import Final

#: jemalloc as polars builds it reads its settings from here, once, when polars is imported.
_VARIABLE: Final = "_RJEM_MALLOC_CONF"
_KEEP: Final = "dirty_decay_ms:5000,muzzy_decay_ms:-1"


def keep_freed_memory() -> None:
    """Import polars so that it keeps freed memory; settings of the user's own are left alone.

    Without effect where polars was imported before. Processes started later do not inherit it.
    """
    if "polars" in sys.modules or _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = _KEEP
    try:
        import polars as pl  # noqa: F401
    finally:
        del os.environ[_VARIABLE]
