"""Two ends of a connection as targets: the broker's frame reader, and a client connection.

The client is the real one on a loop whose connections are in memory. The fuzzed bytes are the
response to its Hello, and then the responses to its requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from millrace._cluster.connection import Connection
from millrace.errors import MillraceError
from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode
from millrace_protocol.framing import TEXT_OPENINGS, response_frame
from millrace_protocol.schema import Message
from millrace_server.dialects.text.line_framing import next_line
from millrace_server.limits import FRAME_BYTES_MIN, READ_BYTES
from millrace_wire.frame_reader import FrameReader, FramingError, Scratch
from tests.fuzz.samples import FRAMES, body
from tests.fuzz.targets import Target

CLIENT_CONNECTION = "client connection"
FRAME_BYTES_MAX = 1 << 16
LINE_BYTES_MAX = 256
_NEVER_MS = 60_000
_CALLS = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
_SCRATCH = Scratch(READ_BYTES)


def cut_input(data: bytes) -> None:
    """However the input arrives, the same frames or lines come out, and the same error."""
    whole = _cut(data, len(data) or 1)
    assert _cut(data, 1 + len(data) // 9) == whole
    assert _cut(data, 7) == whole


def _cut(data: bytes, step: int) -> list[bytes | type[Exception]]:
    reader = FrameReader(_SCRATCH, frame_bytes_max=FRAME_BYTES_MAX, frame_bytes_min=FRAME_BYTES_MIN)
    found: list[bytes | type[Exception]] = []
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        while piece:
            buffer = reader.buffer()
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            piece = piece[count:]
            reader.received(count)
            try:
                found += _taken(reader, data[0] in TEXT_OPENINGS)
            except FramingError as error:
                return [*found, type(error)]
            reader.release_scratch()
    return found


def _taken(reader: FrameReader, text: bool) -> Iterator[bytes]:
    if text:
        while (line := next_line(reader, line_bytes_max=LINE_BYTES_MAX)) is not None:
            yield line
        return
    while (frame := reader.next_frame()) is not None:
        yield bytes(frame)
    if reader.wanted_bytes:
        assert reader.wanted_bytes <= FRAME_BYTES_MAX + 4
        reader.allocate()


INTAKE = Target("broker reader", cut_input, (b"".join(FRAMES[:3]), b"HELP\r\nTOPICS\nFETCH c"))


class _Wire(asyncio.Transport):
    """The client's side of a connection whose peer sends the bytes of the test."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.is_open = True
        self._protocol = protocol

    def write(self, data: Any) -> None:
        """The requests do not matter."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def abort(self) -> None:
        self.is_open = False

    def say(self, data: bytes) -> None:
        """Bytes from the peer, as many at a time as there is room for."""
        while data and self.is_open:
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(buffer), len(data))
            assert count, "a connection that is open has no room"
            buffer[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)

    def hang_up(self) -> None:
        """The peer's end of it."""
        self._protocol.connection_lost(None)


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose connections lead to the latest `_Wire`."""

    wire: _Wire

    async def create_connection(  # type: ignore[override]
        self, factory: Any, *_: Any, **__: Any
    ) -> Any:
        protocol = cast(asyncio.BufferedProtocol, factory())
        self.wire = _Wire(protocol)
        protocol.connection_made(self.wire)
        return self.wire, protocol


async def _open(loop: _Loop, hello: bytes, *, then_hang_up: bool) -> Connection:
    opening = asyncio.ensure_future(
        Connection.open(
            ("broker", 1), client_id="c", connect_timeout_ms=_NEVER_MS, receive_bytes_max=1 << 16
        )
    )
    # Until it has sent Hello.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.wire.say(hello)
    if then_hang_up:
        loop.wire.hang_up()
    return await opening


async def _answered(loop: _Loop, data: bytes) -> None:
    try:
        connection = await _open(loop, data, then_hang_up=True)
    except MillraceError:
        pass
    else:
        assert not connection.is_open
    connection = await _open(loop, _HELLO, then_hang_up=False)
    calls = [
        connection.call(request, APIS[key].response, timeout_ms=_NEVER_MS)
        for key, request in _REQUESTS.items()
    ]
    answers = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    loop.wire.say(data)
    loop.wire.hang_up()
    for answer in await answers:
        if isinstance(answer, BaseException) and not isinstance(answer, MillraceError):
            raise answer
    assert connection.pending_count == 0


@contextmanager
def client_connection() -> Iterator[Target]:
    """The target, for as long as its loop is there."""
    loop = _Loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    def run(data: bytes) -> None:
        loop.run_until_complete(_answered(loop, data))
        assert not complaints, complaints

    try:
        yield Target(CLIENT_CONNECTION, run, (_HELLO, *_ANSWERS, b"".join(_ANSWERS)))
    finally:
        loop.close()


def _answer(key: ApiKey, correlation_id: int) -> bytes:
    made = body(APIS[key].response)
    return response_frame(api=key, version=0, correlation_id=correlation_id, body=made)


_HELLO = next(frame for frame in FRAMES if frame[4:6] == b"MR" and frame[6:8] == b"\x80\x12")
_ANSWERS = tuple(_answer(key, number) for number, key in enumerate(_CALLS, 2))
_REQUESTS: dict[ApiKey, Message] = {
    key: decode(APIS[key].request, body(APIS[key].request), 0) for key in _CALLS
}
