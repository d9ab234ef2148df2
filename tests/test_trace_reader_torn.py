"""A stream may be cut, scrambled or still growing at any byte."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_streams import span, stream

from rlinsight.trace.streams_in import LiveStream

_BATCHES = [
    [span(i, i + 1, activity=f"other:{name}") for i in range(3)] for name in ("a", "b", "a", "cc")
]
_NAMES = st.sampled_from(["update_actor", "reward", "other:x", "other:é"])
_ROW = st.builds(
    span,
    st.integers(-(2**62), 2**62),
    st.none() | st.integers(-(2**62), 2**62),
    _NAMES,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    step=st.none() | st.integers(-(2**31), 2**31 - 1),
    attrs=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@settings(deadline=None)
@given(cut=st.floats(0, 1))
def test_any_cut_leaves_every_complete_batch(compression: str | None, cut: float) -> None:
    data, ends = stream("spans", _BATCHES, compression=compression, closed=True)
    size = round(cut * len(data))
    reader = LiveStream(lambda: io.BytesIO(data[:size]))
    read = [batch.column("start_ns").to_pylist() for batch in reader.batches()]
    complete = sum(end <= size for end in ends)
    assert read == [[0, 1, 2]] * complete
    assert reader.problem is None
    assert reader.torn_bytes == (0 if size == len(data) else size - max([0, *ends[:complete]]))


@settings(deadline=None)
@given(batches=st.lists(st.lists(_ROW, min_size=1, max_size=4), max_size=4), data=st.data())
def test_a_stream_read_in_growing_pieces_gives_each_row_once(
    batches: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    content, _ = stream("spans", batches, compression="zstd", closed=True)
    sizes = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    seen = io.BytesIO()
    reader = LiveStream(lambda: io.BytesIO(seen.getvalue()))
    read: list[int] = []
    for size in (*sizes, len(content)):
        seen.write(content[seen.tell() : size])
        for batch in reader.batches():
            read.extend(batch.column("start_ns").to_pylist())
    assert read == [row["start_ns"] for rows in batches for row in rows]
    assert (reader.closed, reader.problem, reader.torn_bytes) == (True, None, 0)


@settings(deadline=None)
@given(at=st.integers(0, 10_000), byte=st.integers(1, 255))
def test_a_scrambled_byte_never_brings_the_reader_down(at: int, byte: int) -> None:
    data, _ = stream("spans", _BATCHES)
    scrambled = bytearray(data)
    scrambled[at % len(data)] ^= byte
    reader = LiveStream(lambda: io.BytesIO(bytes(scrambled)))
    batches = list(reader.batches())
    assert len(batches) <= len(_BATCHES)
    assert reader.problem or reader.torn_bytes or len(batches) == len(_BATCHES)


def test_a_file_that_ends_in_zeros_is_read_up_to_them() -> None:
    # After a power failure a file can be longer than what reached the disk.
    data, ends = stream("spans", _BATCHES)
    reader = LiveStream(lambda: io.BytesIO(data[: ends[1]] + bytes(5000)))
    assert len(list(reader.batches())) == 2
    assert reader.problem is not None
