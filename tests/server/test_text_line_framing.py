"""However a stream of bytes is cut into reads, the same lines come out.

Frames are cut by the same reader; `tests/connection/test_frame_reader.py` is about them.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.dialects.text.dialect import TextDialect
from millrace_server.dialects.text.line_framing import LineLengthError, last_line, next_line
from millrace_server.limits import READ_BYTES
from millrace_wire.frame_reader import FrameReader, Scratch

SCRATCH = Scratch(READ_BYTES)
LINE_BYTES_MAX = 5_000
NOISE = b"\n" * 5_000
"""What another connection leaves in the scratch after each read."""


def take(reader: FrameReader, data: bytes, *, line_bytes_max: int = LINE_BYTES_MAX) -> list[bytes]:
    """The lines of one read, which other connections follow."""
    reader.buffer()[: len(data)] = data
    reader.received(len(data))
    lines = []
    while (line := next_line(reader, line_bytes_max=line_bytes_max)) is not None:
        lines.append(line)
    reader.release_scratch()
    SCRATCH.data[: len(NOISE)] = NOISE
    return lines


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def reader() -> FrameReader:
    return FrameReader(SCRATCH, frame_bytes_max=1 << 20)


@given(
    lines=st.lists(st.binary(max_size=60).map(lambda line: b"L" + line), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 1 << 20), max_size=12),
    rest=st.sampled_from([b"", b"rest", b"rest\r"]),
)
def test_lines_survive_every_way_of_cutting(
    lines: list[bytes], cuts: list[int], rest: bytes
) -> None:
    """W-8"""
    lines = [line.translate(None, b"\r\n") for line in lines]
    data = b"".join(line + (b"\r\n" if len(line) % 2 else b"\n") for line in lines) + rest
    for parts in (pieces(data, cuts), [data], [data[i : i + 1] for i in range(len(data))]):
        cutter = reader()
        assert [line for part in parts for line in take(cutter, part)] == lines
        assert last_line(cutter) == (b"rest" if rest else None)
        assert last_line(cutter) is None


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_arbitrary_bytes_give_lines_or_a_typed_error(data: bytes, cuts: list[int]) -> None:
    cutter = reader()
    taken = b""
    try:
        for piece in pieces(data, cuts):
            taken += b"".join(take(cutter, piece, line_bytes_max=50))
    except LineLengthError:
        assert len(max(data.split(b"\n"), key=len)) > 50
    assert len(taken) <= len(data)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\nnext"])
def test_a_line_too_long_is_refused_finished_or_not(ending: bytes) -> None:
    assert take(reader(), b"x" * 50 + b"\n", line_bytes_max=50) == [b"x" * 50]
    with pytest.raises(LineLengthError, match="a line of more than 50 bytes"):
        take(reader(), b"x" * 51 + ending, line_bytes_max=50)


def test_only_printable_bytes_open_the_text_dialect() -> None:
    """W-1.1"""
    for first in range(256):
        is_text = TextDialect.recognizes(None, bytes([first]))  # type: ignore[arg-type]
        assert is_text == (0x20 <= first <= 0x7E or chr(first) in "\t\r\n")
