"""Frames: how a stream of bytes is cut into requests and responses (wire_spec.md W-2).

A frame opens with 16 bytes, one line of a hex dump:

     0       4     6     8     10            14    16
    +--------+-----+-----+-----+-------------+-----+----------------
    | length |'MR' | api | ver | correlation |  x  | ...
    +--------+-----+-----+-----+-------------+-----+----------------

`length` counts the bytes after itself. In a request `x` is the length of the client id that
follows, then comes the body. In a response the api has bit 15 set and `x` is an error code: 0
and the api's response follows, anything else and a `ErrorResponse` follows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.messages.error_response import ErrorResponse

MAGIC = b"MR"
HEADER = struct.Struct(">I2sHHIh")
HEADER_SIZE = HEADER.size
LENGTH_SIZE = 4
_HEADER_REST_SIZE = HEADER_SIZE - LENGTH_SIZE
RESPONSE_BIT = 0x8000
CLIENT_ID_BYTES_MAX = 255
FRAME_BYTES_MAX = 16 << 20
"""Largest `length` a broker accepts by default; Hello names the one in force (W-6.2)."""
TEXT_OPENINGS = frozenset(b"\t\n\r") | frozenset(range(0x20, 0x7F))
"""First bytes of a connection that speaks text (W-1.1): what a person can type."""
FRAME_BYTES_MOST = 128 << 20
"""No limit may allow a longer frame: its first byte could be one of `TEXT_OPENINGS`."""
FRAME_BYTES_MAX_BEFORE_HELLO = 64 << 10
"""Largest `length` before the connection's first Hello has a response (W-6.1)."""


@dataclass(slots=True)
class RequestHeader:
    """The header of a request; `body_position` is counted from the start of the frame."""

    api: int
    version: int
    correlation_id: int
    client_id: str
    body_position: int


@dataclass(slots=True)
class ResponseHeader:
    """The header of a response; the body starts at `HEADER_SIZE`."""

    api: int
    version: int
    correlation_id: int
    error_code: int


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header of a whole request frame, its length field included.

    Raises `WireError` when the frame is no request of this protocol.
    """
    size = len(frame)
    if size < HEADER_SIZE:
        raise _short_header(size)
    _, magic, api, version, correlation_id, client_id_size = HEADER.unpack_from(frame)
    end = HEADER_SIZE + client_id_size
    if (
        magic != MAGIC
        or api >= RESPONSE_BIT
        or not 0 <= client_id_size <= CLIENT_ID_BYTES_MAX
        or end > size
    ):
        raise _request_header_error(magic, api, client_id_size)
    client_id = ""
    if client_id_size:
        try:
            client_id = str(frame[HEADER_SIZE:end], "utf-8")
        except UnicodeDecodeError as error:
            position = HEADER_SIZE + error.start
            raise WireError("client id is not UTF-8", position=position) from None
    return RequestHeader(api, version, correlation_id, client_id, end)


def _short_header(size: int) -> WireError:
    return WireError(f"frame header has {size} bytes, {HEADER_SIZE} needed", position=0)


def _bad_magic(magic: bytes) -> WireError:
    return WireError(f"magic is {magic!r}, {MAGIC!r} needed", position=4)


def _request_header_error(magic: bytes, api: int, client_id_size: int) -> WireError:
    """The error of the first field that is wrong."""
    if magic != MAGIC:
        return _bad_magic(magic)
    if api & RESPONSE_BIT:
        return WireError("frame is a response, a request is needed", position=6)
    if not 0 <= client_id_size <= CLIENT_ID_BYTES_MAX:
        return WireError(
            f"client id has {client_id_size} bytes, 0 to {CLIENT_ID_BYTES_MAX} allowed",
            position=14,
        )
    return WireError("client id runs past the end of the frame", position=HEADER_SIZE)


def read_response_header(frame: bytes | bytearray | memoryview) -> ResponseHeader:
    """The header of a whole response frame, its length field included. Raises `WireError`."""
    if len(frame) < HEADER_SIZE:
        raise _short_header(len(frame))
    _, magic, api, version, correlation_id, error_code = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise _bad_magic(magic)
    if not api & RESPONSE_BIT:
        raise WireError("frame is a request, a response is needed", position=6)
    return ResponseHeader(api ^ RESPONSE_BIT, version, correlation_id, error_code)


def request_frame(
    *, api: int, version: int, correlation_id: int, client_id: bytes, body: bytes
) -> bytes:
    """A whole request frame. `client_id` is UTF-8, at most 255 bytes."""
    prefix = request_prefix(
        api=api,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body_size=len(body),
    )
    return prefix + body


def request_prefix(
    *, api: int, version: int, correlation_id: int, client_id: bytes, body_size: int
) -> bytes:
    """What stands before a request body of `body_size` bytes: the header and the client id."""
    size = len(client_id)
    if size > CLIENT_ID_BYTES_MAX:
        raise ValueError(f"client id has {size} bytes, at most {CLIENT_ID_BYTES_MAX} allowed")
    length = _HEADER_REST_SIZE + size + body_size
    return HEADER.pack(length, MAGIC, api, version, correlation_id, size) + client_id


def response_header(
    *, api: int, version: int, correlation_id: int, body_size: int, error_code: int = 0
) -> bytes:
    """The 16 bytes before a response body of `body_size` bytes."""
    return HEADER.pack(
        _HEADER_REST_SIZE + body_size,
        MAGIC,
        api | RESPONSE_BIT,
        version,
        correlation_id,
        error_code,
    )


def response_frame(*, api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame without an error."""
    length = _HEADER_REST_SIZE + len(body)
    return HEADER.pack(length, MAGIC, api | RESPONSE_BIT, version, correlation_id, 0) + body


def error_frame(
    *, api: int, version: int, correlation_id: int, error_code: ErrorCode, response: ErrorResponse
) -> bytes:
    """A whole response frame that refuses the request; an error response has one version."""
    body = encode(response, 0)
    header = response_header(
        api=api,
        version=version,
        correlation_id=correlation_id,
        body_size=len(body),
        error_code=error_code,
    )
    return header + body


class FrameSplitter:
    """Cuts a stream of bytes into whole frames; the plain reader for clients and tools.

    `feed` returns the frames that became whole, each with its length field. At most one partial
    frame is kept, of at most `frame_bytes_max` bytes; its size is checked as soon as the length
    is known, before anything is stored.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._pending = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Takes the next bytes. Raises `WireError` for a length out of bounds."""
        pending = self._pending
        pending += data
        frames: list[bytes] = []
        start = 0
        while len(pending) - start >= LENGTH_SIZE:
            length = int.from_bytes(pending[start : start + LENGTH_SIZE], "big")
            if not _HEADER_REST_SIZE <= length <= self.frame_bytes_max:
                raise WireError(
                    f"frame length is {length}, {_HEADER_REST_SIZE} to {self.frame_bytes_max} "
                    "allowed",
                    position=start,
                )
            end = start + LENGTH_SIZE + length
            if end > len(pending):
                break
            frames.append(bytes(pending[start:end]))
            start = end
        del pending[:start]
        return frames

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame are kept."""
        return len(self._pending)
