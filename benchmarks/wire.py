"""A blocking client that knows frames and nothing of records: what loads the servers under test.

Owns one socket per connection and the loop that keeps requests in flight. It counts the bytes of
responses and does not decode them, so the server is what is measured. `pump` speaks to a bare loop
exactly as it speaks to the broker.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode, encode
from millrace_protocol.framing import HEADER_SIZE, read_response_header, request_frame
from millrace_protocol.messages.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    TopicConfig,
)
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest
from millrace_protocol.messages.hello import HelloRequest
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest
from millrace_protocol.schema import Message

RECEIVE_BYTES = 1 << 20
RESPONSE_TIMEOUT_S = 60.0
Address = tuple[str, int]


class UnexpectedResponse(Exception):
    """The server refused what the benchmark needs, or answered with another size."""


def frame(api: ApiKey, message: Message) -> bytes:
    """A whole request frame; every request has the correlation id 1."""
    return request_frame(
        api=api,
        version=APIS[api].max_version,
        correlation_id=1,
        client_id=b"bench",
        body=encode(message, APIS[api].max_version),
    )


def produce_frame(topic: str, batch: bytes, *, partition: int = 0) -> bytes:
    """A request with acks=1 to append one batch."""
    produced = ProducePartition(topic=topic, partition=partition, records=batch)
    return frame(ApiKey.PRODUCE, ProduceRequest(acks=1, timeout_ms=30_000, partitions=(produced,)))


def fetch_frame(topic: str, offset: int, max_bytes: int, *, partition: int = 0) -> bytes:
    """A request for at most `max_bytes` of one partition that never waits."""
    fetched = FetchPartition(
        topic=topic, partition=partition, leader_epoch=-1, fetch_offset=offset, max_bytes=max_bytes
    )
    return frame(
        ApiKey.FETCH,
        FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, partitions=(fetched,)),
    )


def connect(address: Address) -> socket.socket:
    """A connected socket without Nagle's delay, whose calls end after `RESPONSE_TIMEOUT_S`."""
    sock = socket.create_connection(address, timeout=RESPONSE_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_response(sock: socket.socket) -> bytes:
    """One whole response frame."""
    head = _read_exactly(sock, 4)
    return head + _read_exactly(sock, int.from_bytes(head, "big"))


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise UnexpectedResponse("the server closed the connection")
        parts += part
    return bytes(parts)


def pump(
    sock: socket.socket,
    requests: Sequence[bytes],
    *,
    count: int,
    in_flight: int,
    response_size: int,
) -> None:
    """Sends `count` requests, round `requests`, keeping `in_flight` unanswered.

    Every response must be `response_size` bytes long: responses are told apart by counting.
    """
    buffer = bytearray(RECEIVE_BYTES)
    receive = sock.recv_into
    send = sock.sendall
    total = count * response_size
    received = 0
    sent = 0
    different = len(requests)
    while True:
        due = min(received // response_size + in_flight, count)
        if due - sent == 1:
            send(requests[sent % different])
        elif due > sent:
            send(b"".join([requests[i % different] for i in range(sent, due)]))
        sent = due
        if received >= total:
            break
        size = receive(buffer)
        if not size:
            raise UnexpectedResponse("the server closed the connection")
        received += size
    if received != total:
        raise UnexpectedResponse(f"{received} bytes of responses where {total} were due")


class BrokerConnection:
    """A connection past Hello; one request at a time is in flight."""

    def __init__(self, address: Address) -> None:
        self.sock = connect(address)
        try:
            self.call(ApiKey.HELLO, HelloRequest(software="bench", software_version="1"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the socket."""
        self.sock.close()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, api: ApiKey, message: Message) -> Any:
        """Sends a request and returns the decoded response. Raises `UnexpectedResponse`."""
        return self.decode(api, self.exchange(frame(api, message)))

    def exchange(self, request: bytes) -> bytes:
        """Sends a whole frame and returns the whole response frame."""
        self.sock.sendall(request)
        return read_response(self.sock)

    def decode(self, api: ApiKey, response: bytes) -> Any:
        """Decodes a response frame. Raises `UnexpectedResponse` for a refusal."""
        header = read_response_header(response)
        if header.error_code:
            raise UnexpectedResponse(
                f"{api.name} was refused with error {header.error_code}: {response[HEADER_SIZE:]!r}"
            )
        return decode(APIS[api].response, response[HEADER_SIZE:], header.version)

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> None:
        """Creates a topic; underscores in the names of settings stand for dots.

        Nothing in it expires by age: the batches of the benchmark carry a time long past.
        """
        configs = {"retention_ms": "-1"} | configs
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=1,
            configs=tuple(TopicConfig(k.replace("_", "."), v) for k, v in configs.items()),
        )
        self._check(
            self.call(
                ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,), validate_only=False)
            )
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        self._check(self.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=(name,))))

    def _check(self, response: CreateTopicsResponse | DeleteTopicsResponse) -> None:
        for topic in response.topics:
            if topic.error_code:
                raise UnexpectedResponse(f"{topic.name}: {topic.error_message}")
