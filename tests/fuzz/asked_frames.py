"""The native dialect as a target: frames to a real broker, which must answer or close, and live on.

Owns the broker's thread and the connections. A frame is right up to its length, so that what
comes after it is read; it is followed by a right one, whose answer must come unless the broker
has closed. What the broker logs as an error is a find.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from millrace_protocol.api import ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.errors import WireError
from millrace_protocol.framing import read_request_header, request_frame
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_server.testing import BrokerThread
from tests.fuzz.samples import FRAMES
from tests.fuzz.targets import Target
from tests.hang_timeout import HANG_TIMEOUT_S

ASKED_FRAMES = "native frames"
_SENTINEL_ID = 0x7E57AB1E
_SENTINEL = request_frame(
    api=ApiKey.METADATA,
    version=0,
    correlation_id=_SENTINEL_ID,
    client_id=b"",
    body=encode(MetadataRequest(()), 0),
)
_SMALL = {"durability": "os", "retention.bytes": "1048576", "segment.bytes": "1048576"}
_RESET = struct.pack("ii", 1, 0)


class _Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class _Peer:
    """A connection that is opened again whenever the broker has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None

    def ask(self, frame: bytes) -> None:
        """Sends a frame and waits until it is answered, or the connection closed."""
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), HANG_TIMEOUT_S)
            # A close that leaves nothing behind: there are many, and few ports.
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        try:
            self._connection.sendall(frame + _SENTINEL)
            while self._correlation_id() != _SENTINEL_ID:
                pass
        except (EOFError, ConnectionError):
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _correlation_id(self) -> int:
        """That of the next answer."""
        length = int.from_bytes(self._bytes(4), "big")
        found: int = struct.unpack_from(">I", self._bytes(length), 6)[0]
        return found

    def _bytes(self, count: int) -> bytes:
        assert self._connection is not None
        data = self._connection.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise EOFError
        return data


@contextmanager
def asked_frames() -> Iterator[Target]:
    """The target, for as long as its broker runs."""
    errors = _Errors()
    loggers = [logging.getLogger(name) for name in ("millrace", "asyncio")]
    for logger in loggers:
        logger.addHandler(errors)
    with BrokerThread(partitions_max=20, topic=_SMALL) as broker:
        peer = _Peer(broker.port)

        def run(data: bytes) -> None:
            peer.ask(_without_waiting(data))
            assert not errors.lines, errors.lines.pop()

        yield Target(ASKED_FRAMES, run, FRAMES)
        peer.close()
    for logger in loggers:
        logger.removeHandler(errors)


def _without_waiting(data: bytes) -> bytes:
    """The frame with a right length, and without a wait for records to come."""
    frame = bytearray(data[4:])
    frame[:0] = len(frame).to_bytes(4, "big")
    try:
        header = read_request_header(frame)
    except WireError:
        return bytes(frame)
    if header.api == ApiKey.FETCH:
        frame[header.body_position : header.body_position + 4] = bytes(4)
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)
