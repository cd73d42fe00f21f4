"""One Kafka client, confluent-kafka, against millrace and against Apache Kafka.

Both keep records in the page cache (`durability=os`, which is Kafka's default). A round is a fresh
process of the client; the CPU time is that of the broker. Kafka's JVM gets one gigabyte of heap and
is warm before the rounds count. The last rows compare the two protocols on millrace alone.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from benchmarks.apache_kafka import VERSION, NoKafka, apache_kafka
from benchmarks.batches import batch_of, fill
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.clients import ROUND_TIMEOUT_S, run_contestant, told_by
from benchmarks.contestants.work import Work
from benchmarks.processes import measured, process_cpu_s
from benchmarks.results import Fact, Row, Skipped, compare
from benchmarks.samples import Sample, Spread, interleave, percentile
from benchmarks.session import MIB, Session
from benchmarks.wire import connect, fetch_frame, pump, read_response
from millrace_protocol.codec import encode
from millrace_protocol.kafka.apis import KafkaApiKey
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.headers import RequestHeader
from millrace_protocol.kafka.metadata import NO_ID

GROUP = "kafka"
OURS, THEIRS = "millrace", f"Apache Kafka {VERSION}"
VALUE_BYTES = (100, 1_024)
WARM_UP_ROUNDS = 2
FETCH_VERSION = 12
BATCHES_IN_RESPONSE = 16
NATIVE, KAFKA = "millrace, native", "millrace, Kafka's"


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One broker, for clients and for its clock."""

    servers: str
    pid: int
    tls_ca: str = ""
    """File of the authority of the broker's certificate; empty: its listener is plain."""


def run(session: Session) -> Iterator[Row]:
    """Rows of records a second, CPU time and latency; then the two protocols."""
    if importlib.util.find_spec("confluent_kafka") is None:
        yield Skipped(GROUP, "confluent_kafka not installed: pip install 'millrace[bench]'")
        return
    with running_broker(session, "kafka-data") as broker:
        try:
            with apache_kafka() as (address, pid):
                sides = {OURS: Side(broker.servers, broker.pid), THEIRS: Side(address, pid)}
                for value_bytes in VALUE_BYTES:
                    yield from throughput(session, sides, value_bytes)
                yield from _latency(session, sides)
        except NoKafka as error:
            yield Skipped(GROUP, f"Apache Kafka {VERSION}: {error}")
        yield _protocols(session, broker)


def throughput(
    session: Session,
    sides: Mapping[str, Side],
    value_bytes: int,
    *,
    group: str = GROUP,
    over: str = "",
) -> Iterator[Row]:
    """Rows of producing and consuming, and of the broker's CPU time for them."""
    records = session.scale.records * 100 // max(value_bytes, 100)
    for function, what in (("confluent.produce", "produce"), ("confluent.consume", "consume")):
        works = {
            name: Work(
                side.servers,
                f"{what}-{value_bytes}-{number}",
                records,
                value_bytes=value_bytes,
                tls_ca=side.tls_ca,
            )
            for number, (name, side) in enumerate(sides.items())
        }
        for name, side in sides.items():
            create_topic(side, works[name].topic, is_ours=name.startswith(OURS))
            if what == "consume":
                run_contestant(session, "confluent.fill", works[name])
        runs: dict[str, Callable[[], Sample]] = {
            name: partial(_round, session, side, function, works[name])
            for name, side in sides.items()
        }
        session.say(f"{group}: {what}, {value_bytes} bytes")
        interleave(runs, WARM_UP_ROUNDS)
        samples = interleave(runs, session.scale.rounds)
        pairs: list[tuple[str, str, float | None]] = [(OURS, THEIRS, 1.0)]
        pairs += [(OURS, name, None) for name in sides if name not in (OURS, THEIRS)]
        pairs = [pair for pair in pairs if pair[1] in sides]
        title = f"confluent-kafka {what}{over}, values of {value_bytes} bytes"
        yield compare(group, title, "records", samples, pairs)
        title = f"The broker's CPU time for it: {what}{over}, {value_bytes} bytes"
        yield compare(group, title, "records", samples, pairs, target_by="cpu")


def _round(session: Session, side: Side, function: str, work: Work) -> Sample:
    """The client's time, and the broker's CPU time with that for the client's warm-up."""
    before_s = process_cpu_s(side.pid)
    sample = run_contestant(session, function, work)
    return dataclasses.replace(sample, cpu_s=process_cpu_s(side.pid) - before_s)


def _latency(session: Session, sides: Mapping[str, Side]) -> Iterator[Row]:
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for name, side in sides.items():
        create_topic(side, "latency", is_ours=name == OURS)
    for number in range(session.scale.rounds + 1):
        for name, side in sides.items():
            session.say(f"kafka: latency, {name}, round {number}")
            measured_ms = _latencies(session, side)
            if number:  # The first one warms the JVM up.
                found[name].append(sorted(measured_ms))
    for share, label in ((0.5, "p50"), (0.99, "p99")):
        values = {
            name: Spread.of([percentile(each, share) for each in rounds])
            for name, rounds in found.items()
        }
        title = f"confluent-kafka end to end, 1,000 records/s, {label}"
        limit = values[THEIRS].median if THEIRS in values else None
        for name, spread in values.items():
            yield Fact(GROUP, f"{title}: {name}", "ms", spread, limit if name == OURS else None)


def _latencies(session: Session, side: Side) -> list[float]:
    work = Work(side.servers, "latency", session.scale.paced_records)
    found: list[float] = told_by(
        session, "benchmarks.contestants.confluent_latency", work.to_json()
    )
    return found


def create_topic(side: Side, topic: str, *, is_ours: bool) -> None:
    """One partition, in the page cache."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from benchmarks.contestants.confluent import security

    configs = {"durability": "os"} if is_ours else {}
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=configs)
    admin = AdminClient({"bootstrap.servers": side.servers, **security(side.tls_ca)})
    (created,) = admin.create_topics([new]).values()
    created.result(ROUND_TIMEOUT_S)


def _protocols(session: Session, broker: RunningBroker) -> Row:
    """Fetch responses of a mebibyte in Kafka's protocol beside the native one."""
    batch, records = batch_of(MIB // BATCHES_IN_RESPONSE)
    stored = 32
    with broker.connect() as connection:
        connection.create_topic("protocols", durability="os")
        fill(connection, "protocols", batch, records=records, count=stored * BATCHES_IN_RESPONSE)
    max_bytes = len(batch) * BATCHES_IN_RESPONSE
    offsets = [number * BATCHES_IN_RESPONSE * records for number in range(stored)]
    frames = {
        NATIVE: [fetch_frame("protocols", offset, max_bytes) for offset in offsets],
        KAFKA: [kafka_fetch_frame("protocols", offset, max_bytes) for offset in offsets],
    }
    count = max(session.scale.fetch_bytes // MIB, 1)
    session.say("kafka: fetch responses of both protocols")
    with ExitStack() as stack:
        contestants: dict[str, Callable[[], Sample]] = {}
        for name, requests in frames.items():
            sock = (
                stack.enter_context(broker.connect()).sock
                if name == NATIVE
                else stack.enter_context(connect(broker.address))
            )
            sock.sendall(requests[0])
            size = len(read_response(sock))
            work = partial(pump, sock, requests, count=count, in_flight=4, response_size=size)
            contestants[name] = partial(measured, broker.pid, count * size / 1e6, work)
        interleave(contestants, 1)
        samples = interleave(contestants, session.scale.rounds * 3)
    title = "Fetch responses of 1 MiB, 4 in flight, in Kafka's protocol"
    return compare(GROUP, title, "MB", samples, [(KAFKA, NATIVE, 0.9)])


def kafka_fetch_frame(topic: str, offset: int, max_bytes: int) -> bytes:
    """A request of Kafka's protocol for at most `max_bytes` of one partition that never waits."""
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(-1, 0, 0, max_bytes, topics=(FetchTopic(topic, NO_ID, (wanted,)),))
    header = encode(RequestHeader(KafkaApiKey.FETCH, FETCH_VERSION, 1, "bench"), 2)
    made = header + encode(request, FETCH_VERSION)
    return len(made).to_bytes(4, "big") + made
