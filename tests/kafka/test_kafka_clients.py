"""Clients of Kafka that others have written, beside the project's own, on one broker."""

from __future__ import annotations

import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millrace import Admin, Consumer, Producer, sync
from millrace_server.testing import BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BUILT_IN_CODECS = ("none", "gzip")
"""What kafka-python has without further libraries."""
COUNT = 500
BASE_MS = int(time.time() * 1000) - COUNT


class Sent(NamedTuple):
    """A record as every client can say it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


RECORDS = [
    Sent(
        None if number % 4 == 1 else b"key %d" % (number % 20),
        None if number % 4 == 3 else b"value %d " % number * 20,
        (("trace", b"%d" % number), ("flag", b"")) if number % 3 == 0 else (),
        BASE_MS + number,
    )
    for number in range(COUNT)
]
Write = Callable[[str, str, str], None]
Read = Callable[[str, str], list[Sent]]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """One broker for all tests of this file."""
    with BrokerThread(auto_create_topics=True) as running:
        yield running


# Writing


def confluent_writes(servers: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True}
    )
    failed: list[Any] = []
    for sent in RECORDS:
        producer.produce(
            topic,
            key=sent.key,
            value=sent.value,
            headers=list(sent.headers),
            timestamp=sent.timestamp_ms,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(HANG_TIMEOUT_S) == 0
    assert failed == []


def kafka_python_writes(servers: str, topic: str, codec: str) -> None:
    codec_name = None if codec == "none" else codec
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=codec_name)
    pending = [
        producer.send(
            topic,
            key=sent.key,
            value=sent.value,
            headers=list(sent.headers),
            timestamp_ms=sent.timestamp_ms,
            partition=0,
        )
        for sent in RECORDS
    ]
    for each in pending:
        each.get(HANG_TIMEOUT_S)
    producer.close()


def millrace_writes(servers: str, topic: str, codec: str) -> None:
    with sync.Producer(servers, compression=codec) as producer:  # type: ignore[call-overload]
        for sent in RECORDS:
            producer.send(
                topic,
                sent.value,
                key=sent.key,
                headers=sent.headers,
                timestamp_ms=sent.timestamp_ms,
                partition=0,
            )


# Reading


def confluent_reads(servers: str, topic: str) -> list[Sent]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Sent] = []
    while len(found) < COUNT:
        for message in consumer.consume(COUNT, timeout=HANG_TIMEOUT_S):
            assert message.error() is None
            pairs: Any = message.headers() or ()
            headers = tuple((name, bytes(value)) for name, value in pairs)
            found.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))
    consumer.close()
    return found


def kafka_python_reads(servers: str, topic: str) -> list[Sent]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers)
    where = kafka.TopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek(where, 0)
    found: list[Sent] = []
    while len(found) < COUNT:
        for records in consumer.poll(timeout_ms=HANG_TIMEOUT_S * 1000).values():
            found += [Sent(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
    consumer.close()
    return found


def millrace_reads(servers: str, topic: str) -> list[Sent]:
    with sync.Consumer(servers, topic) as consumer:
        found: list[Sent] = []
        while len(found) < COUNT:
            record = consumer.getone()
            assert record is not None
            headers = tuple((name, value or b"") for name, value in record.headers)
            found.append(Sent(record.key, record.value, headers, record.timestamp_ms))
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("write", [confluent_writes, kafka_python_writes, millrace_writes])
def test_every_client_reads_what_another_has_written(
    broker: BrokerThread, write: Write, codec: str
) -> None:
    if write is kafka_python_writes and codec not in BUILT_IN_CODECS:
        pytest.skip(f"kafka-python has no {codec} of its own")
    topic = f"{write.__name__}-{codec}"
    with sync.Admin(broker.servers) as admin:
        admin.create_topic(topic)
    write(broker.servers, topic, codec)
    readers: list[Read] = [confluent_reads, millrace_reads]
    if codec in BUILT_IN_CODECS:
        readers.append(kafka_python_reads)
    for read in readers:
        assert read(broker.servers, topic) == RECORDS, read


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_aiokafka_writes_and_reads(broker: BrokerThread, is_idempotent: bool) -> None:
    topic = f"asynchronous-{is_idempotent}"
    async with Admin(broker.servers) as admin, Producer(broker.servers) as own:
        await admin.create_topic(topic)
        await own.send_many(topic, [b"first"], partition=0)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.servers, enable_idempotence=is_idempotent, compression_type="lz4"
    )
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker.servers, auto_offset_reset="earliest"
    )
    async with producer, consumer:
        metadata = await producer.send_and_wait(topic, b"second", key=b"k")
        assert metadata.offset == 1
        found = [(await consumer.getone()).value for _ in range(2)]
    assert found == [b"first", b"second"]


async def test_members_of_both_protocols_share_one_group(broker: BrokerThread) -> None:
    async with Admin(broker.servers) as admin:
        await admin.create_topic("shared", partitions=4)
    theirs = aiokafka.AIOKafkaConsumer(
        "shared",
        bootstrap_servers=broker.servers,
        group_id="both",
        partition_assignment_strategy=(RangePartitionAssignor,),
        heartbeat_interval_ms=100,
    )
    async with Consumer(broker.servers, "shared", group="both", assignors=("range",)) as ours:
        async with theirs:
            while not (len(ours.assignment()) == len(theirs.assignment()) == 2):
                await theirs.getmany(timeout_ms=20)
                await ours.getmany(timeout_ms=20)
            numbers = [where.partition for where in ours.assignment()]
            numbers += [where.partition for where in theirs.assignment()]
            assert sorted(numbers) == [0, 1, 2, 3]
            await theirs.commit({next(iter(theirs.assignment())): 0})
        while len(ours.assignment()) < 4:
            await ours.getmany(timeout_ms=20)


def test_a_confluent_group_goes_on_where_it_has_committed(broker: BrokerThread) -> None:
    confluent_writes(broker.servers, "committed", "zstd")
    settings = {
        "bootstrap.servers": broker.servers,
        "group.id": "goes-on",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    values: list[bytes | None] = []
    for _ in range(2):
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["committed"])
        read = 0
        while read < COUNT // 2:
            (message,) = consumer.consume(1, timeout=HANG_TIMEOUT_S)
            assert message.error() is None
            values.append(message.value())
            read += 1
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
    assert values == [sent.value for sent in RECORDS]


def test_confluent_administers_topics(broker: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    (created,) = admin.create_topics([NewTopic("made", num_partitions=3)]).values()
    created.result(HANG_TIMEOUT_S)
    (described,) = admin.describe_topics(confluent_kafka.TopicCollection(["made"])).values()
    assert len(described.result(HANG_TIMEOUT_S).partitions) == 3
    cluster = admin.describe_cluster().result(HANG_TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [0]
    (deleted,) = admin.delete_topics(["made"]).values()
    deleted.result(HANG_TIMEOUT_S)
    assert "made" not in admin.list_topics().topics


def test_times_are_looked_up_as_with_the_own_client(broker: BrokerThread) -> None:
    kafka_python_writes(broker.servers, "times", "none")
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.servers)
    where = kafka.TopicPartition("times", 0)
    found = consumer.offsets_for_times({where: RECORDS[250].timestamp_ms})
    assert found[where].offset == 250
    assert consumer.end_offsets([where]) == {where: COUNT}
    consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat here")
def test_kcat_writes_reads_and_lists(broker: BrokerThread) -> None:
    def kcat(*arguments: str, stdin: bytes = b"") -> bytes:
        command = ["kcat", "-b", broker.servers, *arguments]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, timeout=HANG_TIMEOUT_S, check=True
        )
        return ended.stdout

    kcat("-P", "-t", "typed", "-K", ":", "-z", "snappy", stdin=b"k:one\nk:two\n")
    assert kcat("-C", "-t", "typed", "-e", "-q", "-f", "%k=%s@%o\n") == b"k=one@0\nk=two@1\n"
    assert b'topic "typed" with 1 partitions' in kcat("-L", "-t", "typed")
    from_the_start = ("-X", "auto.offset.reset=earliest", "-c", "2")
    assert kcat("-G", "kcat", *from_the_start, "-q", "typed").split() == [b"one", b"two"]
