"""Dialects as targets: frames to a real broker, which must answer or close, and live on.

Owns the broker's thread and the connections. A frame is right up to its length, so that what
comes after it is read; it is followed by a right one, whose answer must come unless the broker
has closed. What the broker logs as an error is a find.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from millrace_protocol.api import ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.errors import WireError
from millrace_protocol.framing import read_request_header, request_frame
from millrace_protocol.kafka.apis import KafkaApiKey
from millrace_protocol.kafka.framing import read_kafka_header
from millrace_protocol.kafka.headers import RequestHeader as KafkaHeader
from millrace_protocol.kafka.metadata import MetadataRequest as KafkaMetadataRequest
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_server.testing import BrokerThread
from tests.fuzz.kafka_bodies import kafka_frames
from tests.fuzz.samples import FRAMES
from tests.fuzz.targets import Target
from tests.hang_timeout import HANG_TIMEOUT_S

ASKED_FRAMES = "native frames"
ASKED_KAFKA_FRAMES = "kafka frames"
_SENTINEL_ID = 0x7E57AB1E
_SENTINEL = request_frame(
    api=ApiKey.METADATA,
    version=0,
    correlation_id=_SENTINEL_ID,
    client_id=b"",
    body=encode(MetadataRequest(()), 0),
)
_KAFKA_SENTINEL_BODY = encode(KafkaHeader(KafkaApiKey.METADATA, 1, _SENTINEL_ID, None), 1) + encode(
    KafkaMetadataRequest(()), 1
)
_KAFKA_SENTINEL = len(_KAFKA_SENTINEL_BODY).to_bytes(4, "big") + _KAFKA_SENTINEL_BODY
_WITHOUT_REPLICA_ID_SINCE = 15
_WAITING = (KafkaApiKey.JOIN_GROUP, KafkaApiKey.SYNC_GROUP)
"""Their responses wait for other members, for as long as a request says, and the next request of
the connection waits for them."""
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
    """A connection that is opened again whenever the broker has closed it.

    `sentinel` is a right request, whose correlation id stands at `id_position` of the response.
    """

    def __init__(self, port: int, sentinel: bytes, id_position: int) -> None:
        self._port = port
        self._sentinel = sentinel
        self._id_position = id_position
        self._connection: socket.socket | None = None

    def ask(self, frame: bytes) -> None:
        """Sends a frame and waits until it is answered, or the connection closed."""
        self.send(frame)
        self.wait()

    def send(self, frame: bytes) -> None:
        """Sends a frame, and the sentinel behind it."""
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), HANG_TIMEOUT_S)
            # A close that leaves nothing behind: there are many, and few ports.
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        try:
            self._connection.sendall(frame + self._sentinel)
        except ConnectionError:
            self.close()

    def wait(self) -> None:
        """Returns when what was sent is answered, or the connection closed."""
        try:
            while self._connection is not None and self._correlation_id() != _SENTINEL_ID:
                pass
        except (EOFError, ConnectionError):
            self.close()

    @property
    def has_answer(self) -> bool:
        """Whether there is something to read: a part of a response, or the end."""
        return self._connection is None or bool(select.select([self._connection], [], [], 0)[0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _correlation_id(self) -> int:
        """That of the next answer."""
        length = int.from_bytes(self._bytes(4), "big")
        found: int = struct.unpack_from(">I", self._bytes(length), self._id_position)[0]
        return found

    def _bytes(self, count: int) -> bytes:
        assert self._connection is not None
        data = self._connection.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise EOFError
        return data


@contextmanager
def asked_frames() -> Iterator[Target]:
    """The native dialect, for as long as its broker runs."""
    with _running_broker() as (port, errors):
        peer = _Peer(port, _SENTINEL, 6)

        def run(data: bytes) -> None:
            peer.ask(_without_waiting(data))
            assert not errors.lines, errors.lines.pop()

        yield Target(ASKED_FRAMES, run, FRAMES)
        peer.close()


@contextmanager
def asked_kafka_frames() -> Iterator[Target]:
    """Kafka's dialect, for as long as its broker runs."""
    with _running_broker() as (port, errors):
        peer, member = _Peer(port, _KAFKA_SENTINEL, 0), _Peer(port, _KAFKA_SENTINEL, 0)

        def ask_member(frame: bytes) -> None:
            member.send(frame)
            # The broker reads its connections in turn: it has read the frame after these two.
            peer.ask(b"")
            peer.ask(b"")
            if member.has_answer:
                member.wait()
            else:
                member.close()

        def run(data: bytes) -> None:
            frame = _kafka_without_waiting(data)
            if int.from_bytes(frame[4:6], "big") in _WAITING:
                ask_member(frame)
            else:
                peer.ask(frame)
            assert not errors.lines, errors.lines.pop()

        yield Target(ASKED_KAFKA_FRAMES, run, kafka_frames())
        peer.close()
        member.close()


@contextmanager
def _running_broker() -> Iterator[tuple[int, _Errors]]:
    errors = _Errors()
    loggers = [logging.getLogger(name) for name in ("millrace", "asyncio")]
    for logger in loggers:
        logger.addHandler(errors)
    with BrokerThread(partitions_max=20, topic=_SMALL) as broker:
        yield broker.port, errors
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


def _kafka_without_waiting(data: bytes) -> bytes:
    """The same of Kafka's protocol."""
    frame = bytearray(len(data[4:]).to_bytes(4, "big") + data[4:])
    try:
        header = read_kafka_header(frame)
    except WireError:
        return bytes(frame)
    if header.key == KafkaApiKey.FETCH and header.is_supported:
        position = header.body_position + 4 * (header.version < _WITHOUT_REPLICA_ID_SINCE)
        frame[position : position + 4] = bytes(4)
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)
