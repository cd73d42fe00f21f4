"""However a stream of bytes is cut into reads, the same requests come out."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.dialects.text.dialect import TextDialect
from millrace_server.limits import READ_BYTES
from millrace_server.net.frame_reader import FrameLengthError, LineLengthError, Scratch
from millrace_server.net.frame_reader import FrameReader as BareFrameReader

SCRATCH = Scratch()


class FrameReader(BareFrameReader):
    """A reader that remembers which dialect its first byte opened."""

    text: bool | None = None

    def received(self, count: int) -> None:
        super().received(count)
        if self.text is None:
            self.text = bool(TextDialect.recognizes(None, self.unread))  # type: ignore[arg-type]


def take(intake: FrameReader, data: bytes, *, noise: bytes) -> list[bytes]:
    """Feeds one read as a transport does; other connections then use the scratch."""
    requests: list[bytes] = []
    while data:
        buffer = intake.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        intake.received(count)
        while True:
            request = intake.next_line() if intake.text else intake.next_frame()
            if request is not None:
                requests.append(bytes(request))
            elif intake.private_bytes_wanted:
                intake.allocate()
            else:
                break
        intake.put_away()
        SCRATCH.data[: len(noise)] = noise
    return requests


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def intake() -> FrameReader:
    return FrameReader(SCRATCH, frame_bytes_max=1 << 20, line_bytes_max=5_000)


@given(
    sizes=st.lists(st.one_of(st.integers(8, 40), st.integers(4_000, 9_000)), max_size=8),
    cuts=st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_frames_survive_every_way_of_cutting(sizes: list[int], cuts: list[int]) -> None:
    frames = [struct.pack(">I", size) + bytes([number]) * size for number, size in enumerate(sizes)]
    cutter = intake()
    taken = [
        frame
        for piece in pieces(b"".join(frames), cuts)
        for frame in take(cutter, piece, noise=b"\xff" * 20_000)
    ]
    assert taken == frames
    assert not cutter.partial


@given(
    lines=st.lists(st.binary(max_size=60).map(lambda line: b"L" + line), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_lines_survive_every_way_of_cutting(lines: list[bytes], cuts: list[int]) -> None:
    lines = [line.translate(None, b"\r\n") for line in lines]
    data = b"".join(line + (b"\r\n" if len(line) % 2 else b"\n") for line in lines)
    cutter = intake()
    taken = [
        line for piece in pieces(data, cuts) for line in take(cutter, piece, noise=b"\n" * 5_000)
    ]
    assert taken == lines
    assert cutter.last_line() is None


def test_frame_larger_than_the_scratch_arrives_whole() -> None:
    cutter = FrameReader(SCRATCH, frame_bytes_max=4 * READ_BYTES, line_bytes_max=100)
    frame = struct.pack(">I", 3 * READ_BYTES) + bytes(3 * READ_BYTES)
    assert take(cutter, frame * 2, noise=b"\xff") == [frame, frame]


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_arbitrary_bytes_give_requests_or_a_typed_error(data: bytes, cuts: list[int]) -> None:
    cutter = FrameReader(SCRATCH, frame_bytes_max=100, line_bytes_max=50)
    taken = b""
    try:
        for piece in pieces(data, cuts):
            taken += b"".join(take(cutter, piece, noise=b"\x00" * 300))
    except (FrameLengthError, LineLengthError):
        pass
    assert len(taken) <= len(data)


def test_only_what_a_person_can_type_opens_the_text_dialect() -> None:
    """W-1.1"""
    for first in range(256):
        is_text = TextDialect.recognizes(None, bytes([first]))  # type: ignore[arg-type]
        assert is_text == (0x20 <= first <= 0x7E or chr(first) in "\t\r\n")


def test_length_out_of_bounds_is_known_from_four_bytes() -> None:
    cutter = intake()
    with pytest.raises(FrameLengthError) as caught:
        take(cutter, struct.pack(">I", (1 << 20) + 1), noise=b"")
    assert caught.value.length == (1 << 20) + 1
