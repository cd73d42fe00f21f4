"""Attacks on the framing: lengths, headers and other protocols (wire_spec.md W-2, W-6)."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

from millrace_protocol.api import ApiKey, Listener, apis_of
from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import FRAME_BYTES_MAX, FRAME_BYTES_MAX_BEFORE_HELLO, request_frame
from millrace_protocol.messages.metadata import MetadataRequest
from tests.broker.wire import Wire, connect, connect_text
from tests.hostile.attack import closed, hostile, hostile_by_waiting, lives, refused
from tests.hostile.target import Target

CLIENT_APIS = apis_of(Listener.CLIENT)
WHOLE = request_frame(
    api=ApiKey.METADATA,
    version=0,
    correlation_id=1,
    client_id=b"",
    body=encode(MetadataRequest(()), 0),
)


async def _length(target: Target, length: bytes, *, hello: bool = True) -> str:
    async with connect(target.port, hello=hello) as wire:
        wire.writer.write(length)
        outcome = await refused(wire, ErrorCode.FRAME_TOO_LARGE)
        return f"{outcome}, {await closed(wire)}"


@hostile
async def a_negative_length(target: Target) -> str:
    return await _length(target, b"\xff\xff\xff\xff")


@hostile
async def a_length_of_0(target: Target) -> str:
    return await _length(target, bytes(4))


@hostile
async def a_length_shorter_than_the_header(target: Target) -> str:
    return await _length(target, struct.pack(">I", 11) + WHOLE[4:15])


@hostile
async def a_length_of_int32_max(target: Target) -> str:
    return await _length(target, b"\x7f\xff\xff\xff")


@hostile
async def a_length_one_over_the_limit(target: Target) -> str:
    return await _length(target, struct.pack(">I", FRAME_BYTES_MAX + 1))


@hostile
async def a_length_one_over_the_limit_before_hello(target: Target) -> str:
    return await _length(target, struct.pack(">I", FRAME_BYTES_MAX_BEFORE_HELLO + 1), hello=False)


@hostile
async def a_frame_cut_by_fin(target: Target) -> str:
    async with connect(target.port) as wire:
        wire.writer.write(WHOLE + WHOLE[:-1])
        wire.writer.write_eof()
        await wire.receive()
        return f"the whole frame answered, {await closed(wire)}"


@hostile
async def a_large_frame_cut_by_reset(target: Target) -> str:
    for _ in range(target.sized(20, 500)):
        async with connect(target.port) as wire:
            wire.writer.write(struct.pack(">I", FRAME_BYTES_MAX) + bytes(100_000))
            await wire.writer.drain()
            wire.reset()
    return "closed"


@hostile_by_waiting
async def one_byte_at_a_time(target: Target) -> str:
    async with connect(target.port) as wire:
        for byte in WHOLE[:-1]:
            wire.writer.write(bytes((byte,)))
            await wire.writer.drain()
            if wire.reader.at_eof():
                break
            await asyncio.sleep(0.05)
        return await closed(wire)


@hostile_by_waiting
async def one_byte_of_text_at_a_time(target: Target) -> str:
    async with connect_text(target.port) as text:
        for _ in range(40):
            text.writer.write(b"A")
            if text.reader.at_eof():
                break
            await asyncio.sleep(0.05)
        # A byte that was on its way when the broker closed makes the end a reset.
        with suppress(ConnectionResetError):
            assert await text.rest() == ""
        return "closed"


@hostile
async def an_http_request(target: Target) -> str:
    async with connect_text(target.port) as text:
        text.type("GET /metrics HTTP/1.1\r", "Host: localhost\r", "Accept: */*\r", "\r")
        for _ in range(3):
            assert (await text.line()).startswith("ERR INVALID_REQUEST ")
        text.type("QUIT")
        assert await text.line() == "OK bye"
        return "ERR for every line"


@hostile
async def a_tls_hello(target: Target) -> str:
    hello = bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(512)
    return await _length(target, hello, hello=False)


@hostile
async def another_magic(target: Target) -> str:
    async with connect(target.port) as wire:
        wire.writer.write(WHOLE[:4] + b"XX" + WHOLE[6:])
        return await closed(wire)


@hostile
async def a_response_where_a_request_is_due(target: Target) -> str:
    async with connect(target.port) as wire:
        wire.writer.write(WHOLE[:6] + b"\x80" + WHOLE[7:])
        return await closed(wire)


@hostile
async def a_client_id_longer_than_the_frame(target: Target) -> str:
    async with connect(target.port) as wire:
        wire.writer.write(WHOLE[:14] + b"\x00\xff" + WHOLE[16:])
        return await closed(wire)


@hostile
async def a_client_id_of_control_characters(target: Target) -> str:
    async with connect(target.port, client_id=b"\x1b[2J\n\0" * 40) as wire:
        await lives(wire)
    return "answered; it is a name for logs"


@hostile
async def apis_that_do_not_exist(target: Target) -> str:
    """Those between brokers among them: votes, registrations, replica fetches."""
    async with connect(target.port) as wire:
        numbers = [*range(100), *range(999, 1_020), 0x7FFF]
        unknown = [api for api in numbers if api not in CLIENT_APIS]
        for api in unknown:
            wire.send_body(api, b"\xff" * 20)
        for _ in unknown:
            await refused(wire, ErrorCode.UNKNOWN_API)
        await lives(wire)
    return "refused UNKNOWN_API"


@hostile
async def versions_that_do_not_exist(target: Target) -> str:
    async with connect(target.port) as wire:
        for api in CLIENT_APIS:
            wire.send_body(api, b"", version=0xFFFF)
        for _ in CLIENT_APIS:
            code, refusal = await wire.refusal()
            assert code is ErrorCode.UNSUPPORTED_VERSION
            assert 0 <= refusal.min_version <= refusal.max_version
        await lives(wire)
    return "refused UNSUPPORTED_VERSION"


@hostile
async def a_hundred_thousand_requests_and_no_reader(target: Target) -> str:
    """The broker stops reading; what it holds for this client stays bounded."""
    count = target.sized(10_000, 100_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=1)
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire = Wire(reader, writer, client_id=b"")
    for _ in range(count // 100):
        wire.writer.write(WHOLE * 100)
    try:
        async with asyncio.timeout(2):
            await writer.drain()
    except TimeoutError:
        outcome = "not read any further"
    else:
        outcome = "answered"
    wire.reset()
    return outcome


@hostile
async def a_line_without_an_end(target: Target) -> str:
    async with connect_text(target.port) as text:
        text.writer.write(b"PRODUCE hostile 0 " + b"x" * 70_000)
        assert (await text.line()).startswith("ERR INVALID_REQUEST ")
        assert await text.rest() == ""
    return "ERR INVALID_REQUEST, closed"


@hostile
async def a_flood_of_bad_lines(target: Target) -> str:
    count = target.sized(2_000, 100_000)
    async with connect_text(target.port) as text:
        for _ in range(count // 100):
            text.type(*[b"A\xff\xfe\0B\x1b[2J"] * 100)
            for _ in range(100):
                line = await text.line()
                assert line.startswith("ERR INVALID_REQUEST ") and "\x1b" not in line
    return "ERR for every line"


@hostile
async def commands_of_nonsense(target: Target) -> str:
    nonsense = (
        b"FETCH",
        b"FETCH hostile 0 99999999999999999999999999",
        b"FETCH hostile 0 " + b"9" * 4_000,
        b"FETCH hostile 0 " + b"9" * 5_000,
        b"FETCH hostile -1 0 10",
        b"FETCH hostile 0 0 -1",
        b"FETCH hostile 0 0 1_0_0_0_0",
        b"FETCH ../../etc/passwd 0 0",
        b"PRODUCE " + b"n" * 32_000 + b" 0 x",
        b"PRODUCE hostile 99999999999 x",
        b"CREATE \xff\xfe\0 1",
        b"CREATE a/../b",
        b"CREATE fine 99999999999999999999",
        b"DESCRIBE \x1b[2J",
        b"TAIL hostile " + "\u0661\u0662".encode(),
        b"TAIL hostile 0 0",
        b"OFFSETS " + b"x" * 60_000,
    )
    async with connect_text(target.port) as text:
        for line in nonsense:
            answer = await text.ask(line)
            assert answer[-1].startswith("ERR "), (line[:80], answer)
            assert len(answer[-1]) < 70_000 and "\x1b" not in answer[-1]
    return "ERR for every line"
