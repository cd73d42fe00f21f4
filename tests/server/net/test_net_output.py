"""File slices leave whole, are released once, and never block other connections."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import threading
from collections.abc import Callable

import pytest

from millrace_server.environment.seams import File, FileSlice, Response
from millrace_server.limits import Limits
from millrace_server.net.socket_transport import SocketWire
from tests.server.net.conftest import CountedFile, Serve, frame_of, open_descriptors, until

MakeFile = Callable[[bytes], CountedFile]


class GatedReads:
    """Every range is cold once; reading and checking it waits until it is let through."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.checked: list[tuple[int, int]] = []
        self.noted = 0
        self.failures: list[BaseException] = []
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.batch_bytes = 1
        self.cold = True
        self.known = True

    # What the page cache says

    def is_cold(self, file: File, position: int, size: int) -> bool:
        if size > 1:
            self.asked.append((position, size))
        return self.cold

    def passing(self, file: File) -> File:
        return file

    # What the source of the slices says

    def is_checked(self, position: int, end_position: int) -> bool:
        return self.known

    def check(self, file: File, position: int, until: int) -> int:
        self.gate.wait(20)
        if self.error is not None:
            raise self.error
        assert file.pread(until - position, position)
        self.checked.append((position, until))
        return -(-until // self.batch_bytes) * self.batch_bytes

    def note_checked(self, *, is_first_page_new: bool) -> None:
        assert is_first_page_new is self.cold
        self.noted += 1

    def note_failure(self, error: BaseException) -> None:
        self.failures.append(error)

    def note_unchecked(self, position: int, end_position: int) -> None:
        raise AssertionError("bytes are read only to check them")


async def test_slices_larger_than_socket_buffers_arrive_intact(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    data = random.Random(3).randbytes(24 << 20)
    file = counted_file(data)
    cuts = [0, 1, 5_000_000, 5_000_001, 20_000_000, len(data)]
    place.handler.on_frame = lambda connection, frame: [
        piece
        for start, end in itertools.pairwise(cuts)
        for piece in (b"[%08d]" % (end - start), file.slice(start, end - start))
    ]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch") * 2)
    expected = b"".join(
        b"[%08d]" % (end - start) + data[start:end] for start, end in itertools.pairwise(cuts)
    )
    received = await peer.receive(2 * len(expected))
    assert hashlib.sha256(received).digest() == hashlib.sha256(expected * 2).digest()


async def test_empty_parts_and_empty_slices_send_nothing(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    file = counted_file(b"0123456789")
    place.handler.on_frame = lambda connection, frame: [
        b"",
        file.slice(3, 0),
        b"<",
        file.slice(3, 4),
        memoryview(b">"),
        bytearray(),
    ]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    peer.end_input()
    assert await peer.receive_to_end() == b"<3456>"


async def test_reset_while_slices_wait_releases_each_once(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    file = counted_file(bytes(32 << 20))
    place.handler.on_frame = lambda connection, frame: [b"head", file.slice(0, 32 << 20)]
    peer = await place.connect(receive_buffer_bytes=4096)
    await peer.send(frame_of(b"MR fetch") * 5)
    connection = await place.connected()
    await until(lambda: connection._output.waits_for_peer)
    assert file.references == 6
    peer.reset()
    await until(lambda: place.handler.lost == [connection])
    assert file.references == 1


async def test_second_descriptor_is_held_only_while_the_peer_is_waited_for(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    size = 16 << 20
    file = counted_file(bytes(size))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, size)]
    peer = await place.connect()
    connection = await place.connected()
    before = open_descriptors()
    await peer.send(frame_of(b"MR fetch"))
    await until(lambda: connection._output.waits_for_peer)
    assert open_descriptors() == before + 1
    assert len(await peer.receive(size)) == size
    await until(lambda: not connection._output.unsent)
    assert open_descriptors() == before


async def test_file_shorter_than_promised_ends_the_connection(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    file = counted_file(b"x" * 1000)
    place.handler.on_frame = lambda connection, frame: [b"head", file.slice(500, 501)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert len(await peer.receive_to_end()) <= 504
    await until(lambda: len(place.handler.lost) == 1)
    assert "ends at 1000, 1 bytes before the end" in place.handler.lost[0].close_reason


async def test_cold_slice_is_read_and_checked_in_a_thread_while_others_are_served(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    place = await serve(cold_reads=reads)
    size = 9 << 20
    data = random.Random(4).randbytes(size)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: (
        [b"head", file.slice(0, size, reads), b"end"] if frame[4:] == b"MR fetch" else [frame]
    )
    slow = await place.connect()
    await slow.send(frame_of(b"MR fetch"))
    await until(lambda: len(reads.asked) == 1)
    other = await place.connect()
    await other.send(frame_of(b"MR hello"))
    assert await other.receive(12) == frame_of(b"MR hello")
    assert not reads.checked
    reads.gate.set()
    assert await slow.receive(size + 7) == b"head" + data + b"end"
    check_windows(reads, size)
    # A later slice is asked for anew, though it begins where an earlier one was warm.
    count = len(reads.checked)
    await slow.send(frame_of(b"MR fetch"))
    assert await slow.receive(size + 7) == b"head" + data + b"end"
    del reads.checked[:count]
    check_windows(reads, size)


def check_windows(reads: GatedReads, size: int) -> None:
    """Every byte lay in a window that was checked, of at most 4 MiB, before it was sent."""
    reached = 0
    for position, end in reads.checked:
        # What is left of one may be checked again when the peer has kept it waiting.
        assert position <= reached <= end <= min(size, position + (4 << 20))
        reached = end
    assert reached == size
    assert not reads.failures


async def test_unchecked_bytes_are_checked_though_they_are_in_the_page_cache(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.cold = reads.known = False
    reads.gate.set()
    place = await serve(cold_reads=reads)
    file = counted_file(bytes(1000))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, 1000, reads)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert await peer.receive(1000) == bytes(1000)
    assert (reads.checked, reads.noted) == ([(0, 1000)], 1)
    reads.known = True
    await peer.send(frame_of(b"MR fetch"))
    assert await peer.receive(1000) == bytes(1000)
    assert (len(reads.checked), reads.noted) == (1, 1)


async def test_without_a_page_cache_to_ask_bytes_are_checked_all_the_same(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.cold = reads.known = False
    reads.gate.set()
    place = await serve()
    file = counted_file(bytes(1000))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, 1000, reads)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert await peer.receive(1000) == bytes(1000)
    assert (reads.checked, reads.noted) == ([(0, 1000)], 1)


async def test_a_check_that_went_further_than_asked_is_not_repeated(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.batch_bytes = 3 << 20
    reads.gate.set()
    place = await serve(cold_reads=reads)
    size = 6 << 20
    file = counted_file(bytes(size))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, size, reads)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert len(await peer.receive(size)) == size
    assert reads.checked[0] == (0, 4 << 20)
    assert (4 << 20, 6 << 20) not in reads.checked


async def test_residency_is_checked_again_after_a_slow_peer(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.cold = False
    place = await serve(cold_reads=reads)
    size = 12 << 20
    file = counted_file(bytes(size))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, size, reads)]
    peer = await place.connect(receive_buffer_bytes=4096)
    await peer.send(frame_of(b"MR fetch"))
    connection = await place.connected()
    await until(lambda: connection._output.waits_for_peer)
    assert not reads.checked
    reads.cold = True
    reads.gate.set()
    assert len(await peer.receive(size)) == size
    assert reads.checked[0][0] < 12 << 20
    assert reads.checked[-1][1] == size
    assert reads.noted == len(reads.checked)


async def test_file_stays_open_under_a_checking_thread_when_its_peer_resets(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    place = await serve(cold_reads=reads)
    file = counted_file(bytes(1000))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, 1000, reads)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    await until(lambda: len(reads.asked) == 1)
    peer.reset()
    await until(lambda: len(place.handler.lost) == 1)
    assert file.references == 2
    reads.gate.set()
    await until(lambda: file.references == 1)
    assert reads.checked == [(0, 1000)]


async def test_bytes_that_fail_their_check_are_not_sent_and_the_source_is_told(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.error = OSError(5, "Input/output error")
    reads.gate.set()
    place = await serve(cold_reads=reads)
    file = counted_file(bytes(1000))
    place.handler.on_frame = lambda connection, frame: [file.slice(0, 1000, reads)]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert await peer.receive_to_end() == b""
    await until(lambda: len(place.handler.lost) == 1)
    reason = place.handler.lost[0].close_reason
    assert file.path in reason
    assert "Input/output error" in reason
    assert reads.failures == [reads.error]
    assert reads.noted == 0


SMALL, LARGE = 100, 20_000


def small_answers(file: CountedFile, count: int, reads: GatedReads | None = None) -> Response:
    """Heads and slices of `SMALL` bytes, of which every tenth is too large to be copied."""
    answer: Response = []
    for number in range(count):
        position = number * SMALL
        answer += [b"[%06d]" % number, file.slice(position, _small_size(number), reads)]
    return answer


def small_answers_bytes(data: bytes, count: int) -> bytes:
    return b"".join(
        b"[%06d]" % number + data[number * SMALL : number * SMALL + _small_size(number)]
        for number in range(count)
    )


def _small_size(number: int) -> int:
    return LARGE if number % 10 == 9 else SMALL


async def test_many_small_slices_are_read_and_joined(
    serve: Serve, counted_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await serve()
    data = random.Random(7).randbytes(503 * SMALL + LARGE)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: small_answers(file, 503)
    sent_files: list[int] = []
    send_file = SocketWire.send_file

    def counted(wire: SocketWire, part: FileSlice, size: int) -> int:
        sent_files.append(part.size)
        return send_file(wire, part, size)

    monkeypatch.setattr(SocketWire, "send_file", counted)
    peer = await place.connect()
    connection = await place.connected()
    await peer.send(frame_of(b"MR fetch"))
    expected = small_answers_bytes(data, 503)
    assert await peer.receive(len(expected)) == expected
    # The large ones leave straight from the file, and a small one behind which nothing is joined.
    assert sent_files.count(LARGE) == 50
    assert sent_files.count(SMALL) <= 20
    await until(lambda: not connection._output.unsent)
    assert (file.references, connection.held_bytes) == (1, 0)


async def test_small_slices_wait_for_the_disk_like_large_ones(
    serve: Serve, counted_file: MakeFile
) -> None:
    reads = GatedReads()
    reads.known = False
    reads.cold = False
    place = await serve(cold_reads=reads)
    data = random.Random(8).randbytes(200 * SMALL + LARGE)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: small_answers(file, 100, reads)
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert await peer.receive(8) == b"[000000]"
    assert not reads.checked
    reads.gate.set()
    expected = small_answers_bytes(data, 100)
    assert await peer.receive(len(expected) - 8) == expected[8:]
    # Each of them was checked before it was sent.
    assert len(reads.checked) == reads.noted == 100


async def test_a_small_slice_behind_the_end_of_its_file_ends_the_connection(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve()
    file = counted_file(bytes(50 * SMALL))
    place.handler.on_frame = lambda connection, frame: [
        part for number in range(100) for part in (b"head", file.slice(number * SMALL, SMALL))
    ]
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch"))
    assert len(await peer.receive_to_end()) <= 50 * (4 + SMALL) + 4
    await until(lambda: len(place.handler.lost) == 1)
    assert "ends at 5000, 100 bytes before the end" in place.handler.lost[0].close_reason
    assert file.references == 1


async def test_many_small_answers_leave_in_few_packets(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await serve()
    peer = await place.connect()
    connection = await place.connected()
    sends: list[int] = []
    wire = connection._wire
    send = wire.send

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(wire, name)

        def send(self, data: bytes, *, more: bool) -> int:
            sends.append(len(data))
            return send(data, more=more)

    monkeypatch.setattr(connection._output, "_wire", Counting())
    await peer.send(frame_of(b"MR hello") * 60)
    assert await peer.receive(720) == frame_of(b"MR hello") * 60
    assert len(sends) <= 3


async def test_slow_reader_of_slices_gets_every_byte_while_memory_stays_small(
    serve: Serve, counted_file: MakeFile
) -> None:
    place = await serve(limits=Limits(inflight_requests_max=4))
    size = 1 << 20
    data = random.Random(5).randbytes(size)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: [b"head", file.slice(0, size)]
    peer = await place.connect(receive_buffer_bytes=8192)
    await peer.send(frame_of(b"MR fetch") * 40)
    connection = await place.connected()
    received = hashlib.sha256()
    most_held = most_references = 0
    for _ in range(40):
        assert await peer.receive(4) == b"head"
        received.update(await peer.receive(size))
        most_held = max(most_held, connection.held_bytes)
        most_references = max(most_references, file.references)
        await asyncio.sleep(0)
    assert received.digest() == hashlib.sha256(data * 40).digest()
    assert most_held <= 4 * 4
    assert most_references <= 1 + 4
