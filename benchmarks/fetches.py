"""Fetching from the page cache, against a bare `sendfile` loop.

The same reader counts the bytes of both. The topic holds batches of the response's size, or of
64 KiB where a response is larger, so a response to a fetch is cut by `max_bytes` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.bare import bare_server
from benchmarks.batches import batch_of, fill
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import measured
from benchmarks.results import Row, compare
from benchmarks.samples import Sample, interleave
from benchmarks.session import MIB, Session
from benchmarks.wire import connect, fetch_frame, pump
from millrace_protocol.api import ApiKey

GROUP = "fetch"
BATCH_BYTES_MAX = 64 << 10
STORED_BYTES = 64 * MIB
SIZES = (("1 MiB", MIB), ("64 KiB", 64 << 10), ("4 KiB", 4 << 10))
TARGET = 0.7
ROUNDS_OF_LARGE = 5
"""Times as many rounds with the largest responses. A round takes 0.1 s, and the speed of broker and
loop alike differs by three from one to the next."""


def run(session: Session) -> Iterator[Row]:
    """A row for each response size and each number of requests in flight."""
    with running_broker(session, "fetch-data") as broker:
        for label, size in SIZES:
            yield from _rows_of_size(session, broker, label, size)


def _rows_of_size(session: Session, broker: RunningBroker, label: str, size: int) -> Iterator[Row]:
    scale = session.scale
    topic = f"fetch-{size}"
    batch, records = batch_of(min(size, BATCH_BYTES_MAX))
    batches_in_response = max(size // BATCH_BYTES_MAX, 1)
    responses_stored = min(STORED_BYTES, scale.fetch_bytes) // size
    with broker.connect() as connection:
        connection.create_topic(topic, durability="os")
        fill(
            connection, topic, batch, records=records, count=responses_stored * batches_in_response
        )
        max_bytes = len(batch) * batches_in_response
        requests = [
            fetch_frame(topic, index * batches_in_response * records, max_bytes)
            for index in range(responses_stored)
        ]
        response = connection.exchange(requests[-1])
        connection.decode(ApiKey.FETCH, response)
    stored = session.directory / "bare-data"
    # Written in the same pieces as the log: they decide how the page cache lays its pages out.
    with stored.open("wb", buffering=0) as file:
        for _ in range(responses_stored * batches_in_response):
            file.write(batch)
    session.settle()
    # The cost of small responses is per response, so fewer bytes of them are enough.
    count = min(scale.fetch_bytes // size, 2 * scale.requests)
    rounds = scale.rounds * (ROUNDS_OF_LARGE if size == MIB else 1)
    for in_flight in (1, 4):
        session.say(f"fetch: {label}, {in_flight} in flight")
        samples = _measure(
            session,
            broker,
            requests,
            response_size=len(response),
            body_size=max_bytes,
            stored=stored,
            count=count,
            in_flight=in_flight,
            rounds=rounds,
        )
        yield compare(
            GROUP,
            f"Fetch responses of {label}, {in_flight} in flight",
            "MB",
            samples,
            [("millrace", "sendfile loop", TARGET if size == MIB else None)],
            note=_per_request(samples["millrace"], size),
        )
    stored.unlink()


def _measure(
    session: Session,
    broker: RunningBroker,
    requests: list[bytes],
    *,
    response_size: int,
    body_size: int,
    stored: Path,
    count: int,
    in_flight: int,
    rounds: int,
) -> dict[str, list[Sample]]:
    with ExitStack() as stack:
        address, bare_pid = stack.enter_context(
            bare_server(
                session.log,
                "sendfile",
                len(requests[0]),
                response_size - body_size,
                body_size,
                str(stored),
            )
        )
        ours = stack.enter_context(broker.connect()).sock
        bare = stack.enter_context(connect(address))
        contestants = {
            name: partial(
                measured,
                pid,
                count * response_size / 1e6,
                partial(
                    pump,
                    sock,
                    requests,
                    count=count,
                    in_flight=in_flight,
                    response_size=response_size,
                ),
            )
            for name, sock, pid in (
                ("millrace", ours, broker.pid),
                ("sendfile loop", bare, bare_pid),
            )
        }
        entrants = session.entrants(contestants)
        interleave(entrants, 1)
        return interleave(entrants, rounds)


def _per_request(samples: list[Sample], size: int) -> str:
    best = sorted(samples, key=lambda sample: sample.per_cpu_s)[len(samples) // 2]
    megabytes_per_response = size / 1e6
    return (
        f"millrace: {best.per_wall_s / megabytes_per_response:,.0f} responses/s, "
        f"{1073.74 / best.per_cpu_s:.3g} CPU s/GiB."
    )
