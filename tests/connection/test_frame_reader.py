"""However a stream of bytes is cut into reads, the same frames come out of a reader.

Every case runs whole, byte by byte, and with the bytes of a further frame behind it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_wire.frame_buffers import KEPT_BYTES_MIN, FrameBuffers
from millrace_wire.frame_reader import (
    CLEARED_BYTES_MAX,
    FIRST_BYTES,
    FRAME_BYTES_MIN,
    GROWTH,
    IN_PLACE_BYTES,
    FrameLengthError,
    FrameReader,
    Scratch,
)

SCRATCH_BYTES = 64 << 10
FRAME_BYTES_MAX = 8 << 20
SCRATCH = Scratch(SCRATCH_BYTES)
NOISE = b"\xee" * (2 * IN_PLACE_BYTES)
"""What another connection leaves in the scratch after each read."""
TRAILING = struct.pack(">I", FRAME_BYTES_MIN) + b"trai"
"""The beginning of a further frame."""


def frame(size: int, fill: int = 7) -> bytes:
    """A frame of `size` bytes in all."""
    return struct.pack(">I", size - 4) + bytes([fill]) * (size - 4)


def reader(frame_bytes_max: int = FRAME_BYTES_MAX) -> FrameReader:
    return FrameReader(SCRATCH, frame_bytes_max=frame_bytes_max)


def read(reader: FrameReader, data: bytes, buffers: FrameBuffers | None = None) -> Iterator[bytes]:
    """The frames of one arrival, which may take several reads, as a connection takes them."""
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        assert count, "an open reader has room"
        buffer[:count] = data[:count]
        data = data[count:]
        reader.received(count)
        while True:
            found = reader.next_frame()
            if found is not None:
                yield bytes(found)
            elif reader.wanted_bytes:
                assert reader.wanted_bytes <= reader.frame_size
                wanted = reader.wanted_bytes
                assert wanted <= max(FIRST_BYTES, GROWTH * reader.unread_bytes)
                place = None
                if buffers is not None:
                    place = buffers.take(reader.frame_size, wanted=wanted)
                reader.allocate(place)
            else:
                break
        reader.release_scratch()
        SCRATCH.view[: len(NOISE)] = NOISE


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


SIZES = [
    FRAME_BYTES_MIN + 4,
    IN_PLACE_BYTES - 1,
    IN_PLACE_BYTES,
    IN_PLACE_BYTES + 1,
    FIRST_BYTES + 1,
    SCRATCH_BYTES - 1,
    SCRATCH_BYTES,
    SCRATCH_BYTES + 1,
    3 * SCRATCH_BYTES,
]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("step", [1, 5, 4095, 1 << 30])
@pytest.mark.parametrize("size", SIZES)
def test_a_frame_comes_out_whole_and_bytes_behind_it_stay(
    size: int, step: int, pooled: bool
) -> None:
    cutter, buffers = reader(), FrameBuffers() if pooled else None
    data = frame(size) * 2 + TRAILING
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    found = [one for piece in pieces for one in read(cutter, piece, buffers)]
    assert found == [frame(size)] * 2
    assert cutter.unread_bytes == len(TRAILING)
    (last,) = read(cutter, bytes(FRAME_BYTES_MIN - 4), buffers)
    assert last == TRAILING + bytes(FRAME_BYTES_MIN - 4)
    assert (cutter.unread_bytes, cutter.missing_bytes, cutter.frame_size) == (0, 0, 0)


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(FRAME_BYTES_MIN + 4, 40),
            st.integers(IN_PLACE_BYTES - 50, IN_PLACE_BYTES + 5_000),
            st.integers(SCRATCH_BYTES - 50, 3 * SCRATCH_BYTES),
        ),
        max_size=6,
    ),
    places=st.lists(st.integers(0, 1 << 20), max_size=12),
    pooled=st.booleans(),
)
def test_frames_survive_every_way_of_cutting(
    sizes: list[int], places: list[int], pooled: bool
) -> None:
    frames = [frame(size, number) for number, size in enumerate(sizes)]
    cutter, buffers = reader(), FrameBuffers() if pooled else None
    pieces = cut(b"".join(frames) + TRAILING, places)
    assert [one for piece in pieces for one in read(cutter, piece, buffers)] == frames
    assert cutter.unread_bytes == len(TRAILING)


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_arbitrary_bytes_give_frames_or_a_typed_error(data: bytes, places: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[bytes], int]:
        cutter = reader(100)
        found: list[bytes] = []
        try:
            for piece in pieces:
                found.extend(read(cutter, piece))
        except FrameLengthError as error:
            return found, error.length
        return found, -1

    whole = outcome([data])
    assert outcome(cut(data, places)) == whole
    assert outcome([data[i : i + 1] for i in range(len(data))]) == whole


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MIN - 1, FRAME_BYTES_MAX + 1, (1 << 32) - 1])
@pytest.mark.parametrize("step", [1, 1 << 30])
def test_a_length_out_of_bounds_is_known_from_four_bytes(length: int, step: int) -> None:
    cutter = reader()
    data = struct.pack(">I", length)
    with pytest.raises(FrameLengthError, match=f"a frame length of {length}; 12 to") as caught:
        for start in range(0, 4, step):
            list(read(cutter, data[start : start + step]))
    assert caught.value.length == length


def test_frames_before_a_bad_length_come_out_first() -> None:
    cutter = reader()
    found: list[bytes] = []
    with pytest.raises(FrameLengthError):
        found.extend(read(cutter, frame(20) + frame(30) + bytes(4)))
    assert found == [frame(20), frame(30)]


def test_a_small_frame_is_borrowed_and_a_large_one_belongs_to_the_caller() -> None:
    cutter = reader()
    cutter.buffer()[:20] = frame(20)
    cutter.received(20)
    small = cutter.next_frame()
    assert small is not None
    assert bytes(small) == frame(20)
    assert [cutter.owned] == [False]
    cutter.release_scratch()
    list(read(cutter, frame(IN_PLACE_BYTES + 10, 1)[:IN_PLACE_BYTES]))
    cutter.buffer()[:10] = b"\x01" * 10
    cutter.received(10)
    large = cutter.next_frame()
    assert large is not None
    assert [cutter.owned] == [True]
    list(read(cutter, frame(IN_PLACE_BYTES + 10, 2)))
    assert bytes(large) == frame(IN_PLACE_BYTES + 10, 1)


def test_a_length_that_is_only_announced_costs_little_memory() -> None:
    cutter = reader()
    size = CLEARED_BYTES_MAX
    list(read(cutter, frame(size)[:16]))
    sizes = [len(cutter.buffer()) + cutter.unread_bytes]
    for start in range(16, size, 1 << 14):
        list(read(cutter, frame(size)[start : start + (1 << 14)]))
        if cutter.missing_bytes:
            sizes.append(len(cutter.buffer()) + cutter.unread_bytes)
    assert sizes[0] == FIRST_BYTES
    assert sorted(set(sizes)) == [FIRST_BYTES, GROWTH * FIRST_BYTES, GROWTH**2 * FIRST_BYTES, size]


def test_of_a_very_large_frame_only_the_part_that_may_be_filled_grows() -> None:
    cutter = reader()
    data = frame(CLEARED_BYTES_MAX + 100)
    list(read(cutter, data[:100]))
    first = cutter.buffer()
    assert len(first) == FIRST_BYTES - 100
    list(read(cutter, data[100:FIRST_BYTES]))
    second = cutter.buffer()
    assert second.obj is first.obj
    assert len(second) == GROWTH * FIRST_BYTES - FIRST_BYTES
    assert list(read(cutter, data[FIRST_BYTES:])) == [data]


def test_a_frame_that_waits_for_memory_wants_it_again_until_it_has_it() -> None:
    cutter = reader()
    data = frame(100_000)
    cutter.buffer()[:5000] = data[:5000]
    cutter.received(5000)
    for _ in range(3):
        assert cutter.next_frame() is None
        assert cutter.wanted_bytes == GROWTH * 5000
        cutter.release_scratch()
    cutter.allocate()
    assert list(read(cutter, data[5000:])) == [data]


def test_a_frame_is_received_into_the_buffer_that_it_is_given() -> None:
    cutter, buffers = reader(), FrameBuffers()
    size = 4 * KEPT_BYTES_MIN
    warm = buffers.take(size, wanted=size)
    assert warm is not None
    memory = id(warm.obj)
    del warm
    list(read(cutter, frame(size)[:IN_PLACE_BYTES], buffers))
    assert id(cutter.buffer().obj) == memory
    assert cutter.missing_bytes == size - IN_PLACE_BYTES


def test_a_discarded_reader_holds_nothing() -> None:
    cutter = reader()
    list(read(cutter, frame(200_000)[:9_000]))
    cutter.discard()
    assert (cutter.unread_bytes, cutter.missing_bytes, cutter.wanted_bytes) == (0, 0, 0)
    list(read(cutter, frame(20)[:10]))
    cutter.discard()
    assert list(read(cutter, frame(30))) == [frame(30)]


@given(
    lines=st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line), max_size=8),
    places=st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_a_reader_of_lines_can_be_made_of_it(lines: list[bytes], places: list[int]) -> None:
    cutter, found = reader(), []
    for piece in cut(b"".join(line + b"\n" for line in lines) + b"unfinished", places):
        cutter.buffer()[: len(piece)] = piece
        cutter.received(len(piece))
        while (size := cutter.find(10)) >= 0:
            found.append(cutter.take(size + 1))
        cutter.release_scratch()
        SCRATCH.view[: len(NOISE)] = NOISE
    assert found == [line + b"\n" for line in lines]
    assert cutter.take(100) == b"unfinished"
    assert cutter.unread_bytes == 0


def test_a_scratch_that_a_small_frame_fills_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 4096 bytes"):
        Scratch(IN_PLACE_BYTES)


@pytest.mark.parametrize("size", [FRAME_BYTES_MIN + 4, IN_PLACE_BYTES, IN_PLACE_BYTES + 1, 100_000])
def test_the_first_bytes_of_the_next_frame_are_known_before_it_is_whole(size: int) -> None:
    cut = reader()
    assert cut.peek(6) == b""
    data = frame(size)
    for count in range(1, 8):
        assert list(read(cut, data[count - 1 : count])) == []
        assert cut.peek(6) == data[: min(count, 6)]
    assert list(read(cut, data[7:-1])) == []
    assert cut.peek(6) == data[:6]
    assert list(read(cut, data[-1:] + TRAILING)) == [data]
    assert cut.peek(6) == TRAILING[:6]
