"""Frames: how a stream of bytes is cut into requests and responses (wire_spec.md W-2).

A frame opens with 16 bytes, one line of a hex dump:

     0       4     6     8     10            14    16
    +--------+-----+-----+-----+-------------+-----+----------------
    | length |'MR' | api | ver | correlation |  x  | ...
    +--------+-----+-----+-----+-------------+-----+----------------

`length` counts the bytes after itself. In a request `x` is the length of the client id that
follows, then comes the body. In a response the api has bit 15 set and `x` is an error code: 0
and the api's response follows, anything else and a `Refusal` follows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.messages.refusal import Refusal

MAGIC = b"MR"
HEADER = struct.Struct(">I2sHHIh")
HEADER_SIZE = HEADER.size
LENGTH_SIZE = 4
RESPONSE_BIT = 0x8000
CLIENT_ID_BYTES_MAX = 255
FRAME_BYTES_MAX = 16 << 20
"""Largest `length` a broker accepts by default; Hello names the one in force (W-6.2)."""
TEXT_OPENINGS = frozenset(b"\t\n\r") | frozenset(range(0x20, 0x7F))
"""First bytes of a connection that speaks text (W-1.1): what a person can type."""
FRAME_BYTES_MOST = 128 << 20
"""No limit may allow a longer frame: its first byte could be one of `TEXT_OPENINGS`."""
FRAME_BYTES_MAX_BEFORE_HELLO = 64 << 10
"""Largest `length` before the connection's first Hello was answered (W-6.1)."""


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
    if len(frame) < HEADER_SIZE:
        raise WireError(f"a frame header has {HEADER_SIZE} bytes, not {len(frame)}", position=0)
    _, magic, api, version, correlation_id, client_id_size = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise WireError(f"the magic is {magic!r}, not {MAGIC!r}", position=4)
    if api & RESPONSE_BIT:
        raise WireError("a response where a request is due", position=6)
    if not 0 <= client_id_size <= CLIENT_ID_BYTES_MAX:
        raise WireError(
            f"a client id of {client_id_size} bytes; 0 to {CLIENT_ID_BYTES_MAX} are allowed",
            position=14,
        )
    end = HEADER_SIZE + client_id_size
    if end > len(frame):
        raise WireError("the client id runs past the end of the frame", position=HEADER_SIZE)
    try:
        client_id = str(frame[HEADER_SIZE:end], "utf-8") if client_id_size else ""
    except UnicodeDecodeError as error:
        raise WireError("the client id is not UTF-8", position=HEADER_SIZE + error.start) from None
    return RequestHeader(api, version, correlation_id, client_id, end)


def read_response_header(frame: bytes | bytearray | memoryview) -> ResponseHeader:
    """The header of a whole response frame, its length field included. Raises `WireError`."""
    if len(frame) < HEADER_SIZE:
        raise WireError(f"a frame header has {HEADER_SIZE} bytes, not {len(frame)}", position=0)
    _, magic, api, version, correlation_id, error_code = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise WireError(f"the magic is {magic!r}, not {MAGIC!r}", position=4)
    if not api & RESPONSE_BIT:
        raise WireError("a request where a response is due", position=6)
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
        raise ValueError(f"a client id of {size} bytes; the limit is {CLIENT_ID_BYTES_MAX}")
    length = HEADER_SIZE - LENGTH_SIZE + size + body_size
    return HEADER.pack(length, MAGIC, api, version, correlation_id, size) + client_id


def response_header(
    *, api: int, version: int, correlation_id: int, body_size: int, error_code: int = 0
) -> bytes:
    """The 16 bytes before a response body of `body_size` bytes."""
    return HEADER.pack(
        HEADER_SIZE - LENGTH_SIZE + body_size,
        MAGIC,
        api | RESPONSE_BIT,
        version,
        correlation_id,
        error_code,
    )


def response_frame(*, api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame without an error."""
    header = response_header(
        api=api, version=version, correlation_id=correlation_id, body_size=len(body)
    )
    return header + body


def refusal_frame(
    *, api: int, version: int, correlation_id: int, error_code: ErrorCode, refusal: Refusal
) -> bytes:
    """A whole response frame that refuses the request; a refusal has one version."""
    body = encode(refusal, 0)
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
            if not HEADER_SIZE - LENGTH_SIZE <= length <= self.frame_bytes_max:
                raise WireError(
                    f"a frame length of {length}; {HEADER_SIZE - LENGTH_SIZE} to "
                    f"{self.frame_bytes_max} are allowed",
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
