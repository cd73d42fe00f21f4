"""Producing to the page cache and to the disk, against a bare receive-and-append loop.

Each durability is compared with a loop that promises the same. With `durability=os` the broker
responds when the batch is in the page cache, and so does the loop that only writes. With
`durability=fsync` it responds when the batch is on disk, and so does the loop that calls
`fdatasync` after each batch. The broker also checks every CRC. With several batches in flight the
broker may make many durable at once, which the loop cannot.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.bare import bare_server
from benchmarks.batches import batch_of, check_end
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import measured
from benchmarks.results import Row, compare
from benchmarks.samples import Sample, interleave
from benchmarks.session import MIB, Session
from benchmarks.wire import connect, produce_frame, pump
from millrace_protocol.api import ApiKey

GROUP = "produce"
SIZES = (("1 MiB", MIB), ("64 KiB", 64 << 10))
TARGET = 0.5
TOPIC = "produce-bench"
"""One name for all rounds, so that requests and responses keep their sizes."""


def run(session: Session) -> Iterator[Row]:
    """A row for each durability, batch size and number of batches in flight."""
    with running_broker(session, "produce-data") as broker:
        for durability in ("os", "fsync"):
            for label, size in SIZES:
                for in_flight in (1, 4):
                    session.say(f"produce: {durability}, {label}, {in_flight} in flight")
                    yield _row(session, broker, durability, label, size, in_flight)


def _row(
    session: Session,
    broker: RunningBroker,
    durability: str,
    label: str,
    size: int,
    in_flight: int,
) -> Row:
    synced = durability == "fsync"
    scale = session.scale
    count = max((scale.synced_bytes if synced else scale.produce_bytes) // size, 1)
    batch, records = batch_of(size)
    request = produce_frame(TOPIC, batch)
    response_size = _response_size(broker, request, durability)

    def ours() -> Sample:
        with broker.connect() as connection:
            connection.create_topic(TOPIC, durability=durability, max_message_bytes=str(2 * MIB))
            sample = measure(broker.pid, connection.sock)
            check_end(connection, TOPIC, count * records)
            connection.delete_topic(TOPIC)
        return sample

    def measure(pid: int, sock: socket.socket) -> Sample:
        session.settle()
        session.warm_pages(count * size)
        return measured(
            pid,
            count * size / 1e6,
            partial(
                pump,
                sock,
                [request],
                count=count,
                in_flight=in_flight,
                response_size=response_size,
            ),
        )

    bare_name = "append + fdatasync loop" if synced else "append loop"
    with ExitStack() as stack:
        address, bare_pid = stack.enter_context(
            bare_server(
                session.log,
                "append",
                len(request),
                response_size,
                size,
                int(synced),
                str(session.directory / "bare-data"),
            )
        )

        def bare() -> Sample:
            with connect(address) as sock:
                return measure(bare_pid, sock)

        contestants = session.entrants({"millrace": ours, bare_name: bare})
        interleave(contestants, 1)
        samples = interleave(contestants, scale.rounds)
    return compare(
        GROUP,
        f"Produce batches of {label}, durability={durability}, {in_flight} in flight",
        "MB",
        samples,
        [("millrace", bare_name, TARGET if size == MIB else None)],
    )


def _response_size(broker: RunningBroker, request: bytes, durability: str) -> int:
    """Bytes of the response to a batch that was appended."""
    with broker.connect() as connection:
        connection.create_topic(TOPIC, durability=durability, max_message_bytes=str(2 * MIB))
        response = connection.exchange(request)
        connection.decode(ApiKey.PRODUCE, response)
        connection.delete_topic(TOPIC)
    return len(response)
