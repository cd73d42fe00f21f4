"""Small requests: what one costs the broker, against a loop that only receives and replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.bare import bare_server
from benchmarks.batches import batch_of
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import measured
from benchmarks.results import Row, compare
from benchmarks.samples import Sample, interleave
from benchmarks.session import Session
from benchmarks.wire import connect, frame, produce_frame, pump
from millrace_protocol.api import ApiKey
from millrace_protocol.messages.hello import HelloRequest
from millrace_protocol.messages.metadata import MetadataRequest

GROUP = "requests"
TOPIC = "requests-bench"
BATCH_BYTES = 61 + 108
"""A header and one record with a value of 100 bytes."""


def run(session: Session) -> Iterator[Row]:
    """A row for each kind of request, alone and with sixteen in flight."""
    with running_broker(session, "requests-data") as broker:
        with broker.connect() as connection:
            connection.create_topic(TOPIC, durability="os")
        batch, _ = batch_of(BATCH_BYTES)
        kinds = (
            ("Hello", ApiKey.HELLO, frame(ApiKey.HELLO, HelloRequest("bench", "1"))),
            ("Metadata of one topic", ApiKey.METADATA, frame(ApiKey.METADATA, _metadata())),
            ("Produce of a 100-byte value", ApiKey.PRODUCE, produce_frame(TOPIC, batch)),
        )
        for label, api, request in kinds:
            for in_flight in (1, 16):
                session.say(f"requests: {label}, {in_flight} in flight")
                yield _row(session, broker, label, api, request, in_flight)


def _metadata() -> MetadataRequest:
    return MetadataRequest(topics=(TOPIC,))


def _row(
    session: Session,
    broker: RunningBroker,
    label: str,
    api: ApiKey,
    request: bytes,
    in_flight: int,
) -> Row:
    count = session.scale.requests
    with ExitStack() as stack:
        connection = stack.enter_context(broker.connect())
        response = connection.exchange(request)
        connection.decode(api, response)
        address, bare_pid = stack.enter_context(
            bare_server(session.log, "reply", len(request), len(response))
        )
        bare = stack.enter_context(connect(address))
        contestants = {
            name: partial(
                measured,
                pid,
                count,
                partial(
                    pump,
                    sock,
                    [request],
                    count=count,
                    in_flight=in_flight,
                    response_size=len(response),
                ),
            )
            for name, sock, pid in (
                ("millrace", connection.sock, broker.pid),
                ("reply loop", bare, bare_pid),
            )
        }
        entrants = session.entrants(contestants)
        interleave(entrants, 1)
        samples = interleave(entrants, session.scale.rounds)
    return compare(
        GROUP,
        f"{label}, {in_flight} in flight",
        "requests",
        samples,
        [("millrace", "reply loop", None)],
        note=_cost(samples["millrace"]),
    )


def _cost(samples: list[Sample]) -> str:
    middle = sorted(samples, key=lambda sample: sample.per_cpu_s)[len(samples) // 2]
    return f"millrace: {1e6 / middle.per_cpu_s:.3g} µs of CPU per request."
