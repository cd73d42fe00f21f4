"""What waits to be sent on one connection, in order, and the sending of it.

Owns the queue of bytes and file slices, and each slice's reference from `append` until it was
sent or given back. Knows nothing of requests; how bytes leave is the wire's business
(`net/wire.py`).

A slice of a file that is not in the page cache is read into it by a worker thread first:
`sendfile` would wait for the disk on the event loop, with every other connection behind it. The
thread has the slice's source check what it reads, since a disk may give back other bytes than it
was given; so does one for bytes that were in the page cache when the process began.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from functools import partial

from millrace_server.environment.seams import (
    ColdReads,
    File,
    FileSlice,
    ReadBuffer,
    Response,
    ResponsePart,
    SliceSource,
    Spawn,
    release_slices,
)
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.net.socket_transport import Wire
from millrace_server.net.traffic import Traffic

TURN_BYTES = 2 << 20
"""Sent at most before other connections get their turn, in some 500 us."""
CALL_BYTES = 64 << 10
"""What a call of the kernel counts for beside its bytes: an answer may be two thousand slices of a
few bytes, and takes some 10 us for each."""
COPIED_BYTES = 256 << 10
"""The most that is copied into the kernel in one call."""
COPY_COST = 8
"""How many bytes of a file are sent while one is copied, when its pages are there."""
JOINED_BYTES = 64 << 10
"""Small parts are joined up to this size; a part this large is not copied."""
SMALL_SLICE_BYTES = 4 << 10
"""A slice of a file up to this size is read and joined as well, when it is one of many or alone
with its frame: `sendfile` takes 5 to 10 us for any size, reading a few bytes takes 1."""
ONE_RESPONSE = 2
"""The parts of a response with one slice. With the frame and the slice in one call of the kernel
the 50th percentile from a producer to a consumer is a fifth less."""
MANY_PARTS = 6
"""From so many parts in the queue on, small slices are joined. With fewer, the peer takes the first
response while the next is sent: joined responses arrive at once, and later."""
JOINED_SLICES = 64
"""The most slices that are joined for one call: each is a read."""
SMALL_SLICE_COST = 16 << 10
"""What reading a small slice counts for, beside what is sent."""
CHECK_BYTES = 4 << 20
"""Read and checked of a slice at once: what two turns send."""


class OutputError(Exception):
    """The connection cannot go on: the message says whether the peer or a file broke."""


class Wait(enum.Enum):
    """What an output with bytes in it is waiting for."""

    PEER = enum.auto()
    """The peer must read first."""
    DISK = enum.auto()
    """A worker thread reads the head slice into the page cache, and checks it."""
    TURN = enum.auto()
    """Other connections go first."""


class Output:
    """The ordered queue of one connection.

    `append` takes a reply, `pump` sends what can be sent now. When waiting ends, `wake` is
    called, and the connection pumps again. `held_bytes` counts bytes in memory, not
    those in files. After `close` nothing is sent and `append` drops what it gets.
    """

    __slots__ = (
        "_check_error",
        "_closed",
        "_cold_reads",
        "_ready_until",
        "_scheduler",
        "_spawn",
        "_traffic",
        "_wait",
        "_wake",
        "_wire",
        "bytes_sent",
        "held_bytes",
        "unsent",
        "unsent_replies",
    )

    def __init__(
        self,
        wire: Wire,
        *,
        scheduler: FairScheduler,
        spawn: Spawn,
        cold_reads: ColdReads | None,
        traffic: Traffic,
        wake: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._scheduler = scheduler
        self._spawn = spawn
        self._cold_reads = cold_reads
        self._traffic = traffic
        self._wake: Callable[[], None] | None = wake
        self.unsent: deque[ResponsePart] = deque()
        self._wait: Wait | None = None
        self._ready_until = -1
        self._check_error: BaseException | None = None
        self._closed = False
        self.held_bytes = 0
        self.bytes_sent = 0
        self.unsent_replies = 0
        """Replies appended since the queue was last empty."""

    @property
    def waits_for_peer(self) -> bool:
        return self._wait is Wait.PEER

    def append(self, parts: Response) -> None:
        """Takes a reply; its slices are released once sent or dropped."""
        if self._closed:
            release_slices(parts)
            return
        for part in parts:
            if isinstance(part, FileSlice):
                if not part.size:
                    part.release()
                    continue
            elif part:
                self.held_bytes += len(part)
            else:
                continue
            self.unsent.append(part)
        self.unsent_replies += 1

    def pump(self) -> None:
        """Sends until the queue is empty or must wait. Raises `OutputError`."""
        if self._wait is not None or self._closed:
            return
        queue = self.unsent
        turn = TURN_BYTES
        try:
            while queue:
                if turn <= 0:
                    self._wait_for_turn()
                    return
                part = queue[0]
                if isinstance(part, FileSlice):
                    if part.position >= self._ready_until and self._wait_for_disk(part):
                        return
                    turn -= CALL_BYTES + self._send_slice(part, turn)
                else:
                    turn -= CALL_BYTES + self._send_bytes(part)
        except BlockingIOError:
            self._wait = Wait.PEER
            # By the time the peer has read, the bytes may have left the page cache.
            self._ready_until = -1
            self._wait_for_peer()
            return
        except OSError as error:
            raise OutputError(f"the peer is gone: {error.strerror or error}") from error
        self.unsent_replies = 0
        self._wire.stop_waiting()

    def close(self) -> deque[ResponsePart]:
        """Lets go of the wire; returns what was not sent, whose slices the caller releases."""
        self._closed = True
        self._wake = None
        unsent, self.unsent = self.unsent, deque()
        self.held_bytes = 0
        self._wire.close()
        return unsent

    def _send_bytes(self, data: ReadBuffer) -> int:
        """Sends the head of the queue, joined with the small parts behind it; returns what that
        counts for."""
        queue = self.unsent
        size = len(data)
        cost = 0
        count = len(queue)
        joins_slices = count == ONE_RESPONSE or count >= MANY_PARTS
        if count > 1 and size < JOINED_BYTES and _is_joined(queue[1], joins_slices):
            data, slices = self._join(joins_slices=joins_slices)
            size = len(data)
            cost = slices * SMALL_SLICE_COST
            queue.appendleft(data)
        head = memoryview(data)[:COPIED_BYTES] if size > COPIED_BYTES else data
        sent = self._wire.send(head, more=len(queue) > 1)
        if sent == size:
            queue.popleft()
        else:
            queue[0] = memoryview(data)[sent:]
        self.held_bytes -= sent
        self.bytes_sent += sent
        self._traffic.sent_bytes += sent
        return cost + COPY_COST * sent

    def _join(self, *, joins_slices: bool) -> tuple[ReadBuffer, int]:
        """Takes small parts off the head of the queue, as one; and how many of them were slices."""
        queue = self.unsent
        run: list[ReadBuffer] = []
        size = slices = 0
        while queue and size < JOINED_BYTES and slices < JOINED_SLICES:
            part = queue[0]
            if isinstance(part, FileSlice):
                data = self._read_small(part) if _is_joined(part, joins_slices) else None
                if data is None:
                    break
                self.held_bytes += part.size
                part.release()
                slices += 1
                part = data
            run.append(part)
            size += len(part)
            queue.popleft()
        return run[0] if len(run) == 1 else b"".join(run), slices

    def _read_small(self, part: FileSlice) -> ReadBuffer | None:
        """A slice that is better copied, when that needs no disk and no check."""
        file, position, size = part.file, part.position, part.size
        if not part.source.is_checked(position, position + size):
            return None
        # `pread_cached` begins to read what is absent. The next look at the page cache would take
        # that, which is new from the disk, for bytes that were checked.
        if self._is_cold(file, position, size):
            return None
        data = file.pread_cached(size, position)
        if data is not None:
            self._traffic.cached_reads += 1
        return data

    def _send_slice(self, part: FileSlice, turn: int) -> int:
        size = min(part.size, turn, self._ready_until - part.position)
        try:
            sent = self._wire.send_file(part, size)
        except (BlockingIOError, ConnectionError):
            raise
        except OSError as error:
            raise OutputError(
                f"sending {part.file.path} from {part.position} failed: {error.strerror}; "
                "see the kernel log if the disk is at fault"
            ) from error
        if sent == 0:
            raise OutputError(
                f"{part.file.path} ends at {part.position}, {part.size} bytes before the end of "
                "what the answer promised; it was cut while it was being read"
            )
        part.position += sent
        part.size -= sent
        self.bytes_sent += sent
        self._traffic.sent_bytes += sent
        if not part.size:
            self.unsent.popleft()
            self._ready_until = -1
            part.release()
        return sent

    def _wait_for_peer(self) -> None:
        try:
            self._wire.wait(self._waited)
        except OSError as error:
            raise OutputError(
                f"no descriptor to wait for a slow reader with: {error.strerror}; raise the "
                "limit of open files (ulimit -n)"
            ) from error

    def _wait_for_turn(self) -> None:
        self._wire.stop_waiting()
        self._wait = Wait.TURN
        self._scheduler.enter(self._waited)

    def _wait_for_disk(self, part: FileSlice) -> bool:
        """Whether the next bytes of the head slice must be read and checked first; that is begun
        then."""
        file, source, position = part.file, part.source, part.position
        if self._check_error is not None:
            raise OutputError(f"reading {file.path} failed: {self._check_error}")
        size = min(part.size, CHECK_BYTES)
        end = self._ready_until = position + size
        is_cold = self._is_cold(file, position, size)
        if not is_cold and source.is_checked(position, end):
            self._traffic.cached_reads += 1
            return False
        if is_cold:
            self._traffic.cold_reads += 1
        else:
            self._traffic.unchecked_reads += 1
        # The page is new from the disk for the bytes before it too, which are not checked here.
        is_first_page_new = self._is_cold(file, position, 1)
        self._wire.stop_waiting()
        self._wait = Wait.DISK
        # The thread's own reference: the connection may be lost, and its slices released, while
        # the thread still reads from the descriptor.
        file.retain()
        check = self._spawn.blocking(source.check, file, position, end)
        check.add_done_callback(partial(self._checked, file, source, is_first_page_new))
        return True

    def _is_cold(self, file: File, position: int, size: int) -> bool:
        cold_reads = self._cold_reads
        return cold_reads is not None and cold_reads.is_cold(file, position, size)

    def _checked(
        self, file: File, source: SliceSource, is_first_page_new: bool, check: asyncio.Future[int]
    ) -> None:
        file.release()
        if check.cancelled():
            self._check_error = asyncio.CancelledError("the broker is stopping")
        elif (error := check.exception()) is not None:
            self._check_error = error
            source.note_failure(error)
        else:
            source.note_checked(is_first_page_new=is_first_page_new)
            self._ready_until = check.result()
        if self._check_error is not None:
            self._ready_until = -1
        self._waited()

    def _waited(self) -> None:
        self._wait = None
        if self._wake is not None:
            self._wake()


def _is_joined(part: ResponsePart, joins_slices: bool) -> bool:
    """Whether a part is copied to those before it."""
    return not isinstance(part, FileSlice) or (joins_slices and part.size <= SMALL_SLICE_BYTES)
