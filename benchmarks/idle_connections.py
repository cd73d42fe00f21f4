"""Many idle connections, and how much they slow down a busy one.

A process of its own holds the idle connections, since a process may open about as many files as
there are connections. Run as `python -m benchmarks.idle_connections HOST PORT COUNT`, it prints a
line when all of them are past Hello, and holds them until its input ends.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import mean

from benchmarks.batches import batch_of
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import (
    child,
    python_module,
    raise_open_files_limit,
    read_line,
    resident_bytes,
)
from benchmarks.results import RATIO_UNIT, Fact, Row
from benchmarks.samples import Spread, percentile
from benchmarks.session import Session
from benchmarks.small_requests import BATCH_BYTES
from benchmarks.wire import Address, BrokerConnection, produce_frame
from millrace_protocol.api import ApiKey

GROUP = "connections"
TOPIC = "idle-bench"
SLOWDOWN_LIMIT = 2.0
SPARE_CONNECTIONS = 100
WARM_UP_REQUESTS = 200


def run(session: Session) -> Iterator[Row]:
    """How the p99 of a producer's acks changes while the connections are held."""
    count = session.scale.connections
    before: list[float] = []
    during: list[float] = []
    after: list[float] = []
    cost: list[float] = []
    with running_broker(session, "idle-data", connections_max=count + SPARE_CONNECTIONS) as broker:
        with broker.connect() as connection:
            connection.create_topic(TOPIC, durability="os")
        for _ in range(session.scale.rounds):
            session.say(f"connections: {count} idle beside one producer")
            memory = resident_bytes(broker.pid)
            before.append(ack_p99_ms(session, broker, TOPIC))
            with _held(session, broker.address, count):
                cost.append((resident_bytes(broker.pid) - memory) / count / 1024)
                during.append(ack_p99_ms(session, broker, TOPIC))
            after.append(ack_p99_ms(session, broker, TOPIC))
    alone = [mean(pair) for pair in zip(before, after, strict=True)]
    ratios = [beside / free for beside, free in zip(during, alone, strict=True)]
    held = f"{count:,} idle connections".replace(",", " ")
    note = "one producer of 100-byte values, one in flight, durability=os"
    yield from [
        Fact(GROUP, "p99 of an ack, without others", "ms", Spread.of(alone), None, note),
        Fact(GROUP, f"p99 of an ack, beside {held}", "ms", Spread.of(during), None, note),
        Fact(GROUP, "p99 beside them / p99 without", RATIO_UNIT, Spread.of(ratios), SLOWDOWN_LIMIT),
        Fact(
            GROUP,
            "Memory of an idle connection in the broker",
            "KiB",
            Spread.of([cost[0]]),
            None,
            "from the first round; later ones reuse memory",
        ),
    ]


def ack_p99_ms(session: Session, broker: RunningBroker, topic: str) -> float:
    """p99 of the acks of one producer with one small batch in flight."""
    request = produce_frame(topic, batch_of(BATCH_BYTES)[0])
    times: list[float] = []
    with broker.connect() as connection:
        for _ in range(WARM_UP_REQUESTS):
            response = connection.exchange(request)
        connection.decode(ApiKey.PRODUCE, response)
        clock = time.perf_counter
        for _ in range(session.scale.requests):
            started = clock()
            connection.exchange(request)
            times.append(clock() - started)
    times.sort()
    return percentile(times, 0.99) * 1000


@contextlib.contextmanager
def _held(session: Session, address: Address, count: int) -> Iterator[None]:
    host, port = address
    command = python_module("benchmarks.idle_connections", host, str(port), str(count))
    with child(command, log=session.log) as process:
        read_line(process, session.log)
        yield


def main(arguments: list[str]) -> None:
    host, port, count = arguments
    raise_open_files_limit()
    with ExitStack() as stack:
        for _ in range(int(count)):
            stack.enter_context(BrokerConnection((host, int(port))))
        print("held", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
