"""A stream reader, called as Spark's driver calls it; the brokers are real."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millrace.errors import ConnectionFailed
from millrace.records import TopicPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import DataLost, OptionError
from tests.spark.driven_stream import Stream, produce, records

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[Admin]:
    with Admin(broker.servers) as running:
        yield running


def test_the_first_micro_batch_is_empty_and_pins_the_start(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("pinned", partitions=1)
    produce(broker, "pinned", p0=3)
    stream = streams(subscribe="pinned", startingOffsets="latest")
    assert stream.batch() == []
    produce(broker, "pinned", p0=2)
    # A driver that dies before the first micro-batch is done begins it again, with no start in
    # the checkpoint; its own idea of the latest offset is a later one.
    again = streams(stream.documents, subscribe="pinned", startingOffsets="latest")
    assert again.read(again.reader.initialOffset(), stream.documents[0]) == []
    assert again.batch() == records("pinned", 0, 3, 5)


def test_the_start_is_the_same_however_often_it_is_asked_for(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("asked-twice", partitions=1)
    reader = streams(subscribe="asked-twice", startingOffsets="latest").reader
    first = reader.initialOffset()
    produce(broker, "asked-twice", p0=1)
    assert reader.initialOffset() == first


def test_each_record_is_in_one_micro_batch_and_a_repeated_one_is_the_same(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("repeated", partitions=2)
    produce(broker, "repeated", p0=3, p1=1)
    stream = streams(subscribe="repeated")
    assert stream.to_the_end() == [
        [],
        records("repeated", 0, 0, 3) + records("repeated", 1, 0, 1),
    ]
    produce(broker, "repeated", p0=2)
    again = streams(stream.documents, subscribe="repeated")
    assert again.repeated_batch() == stream.records
    assert again.to_the_end() == [records("repeated", 0, 3, 5)]


def test_nothing_new_is_the_same_text_and_waits_for_a_record(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("idle", partitions=12)
    stream = streams(subscribe="idle")
    assert stream.batch() == []
    assert stream.batch() is None
    produce(broker, "idle", p11=1)
    assert stream.batch() == records("idle", 11, 0, 1)


def test_available_now_ends_at_the_offsets_of_its_start(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("now", partitions=1)
    produce(broker, "now", p0=5)
    stream = streams(subscribe="now", maxOffsetsPerTrigger="2").stop_at_latest()
    produce(broker, "now", p0=5)
    batches = stream.to_the_end()
    assert [len(batch) for batch in batches] == [0, 2, 2, 1]
    assert stream.records == records("now", 0, 0, 5)
    later = streams(stream.documents, subscribe="now").stop_at_latest()
    assert later.to_the_end() == [records("now", 0, 5, 10)]


def test_available_now_after_an_empty_first_micro_batch_that_was_not_done_reads_on(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("interrupted", partitions=1)
    produce(broker, "interrupted", p0=4)
    stream = streams(subscribe="interrupted").stop_at_latest()
    assert stream.batch() == []
    again = streams(stream.documents, subscribe="interrupted").stop_at_latest()
    assert again.read(again.reader.initialOffset(), stream.documents[0]) == []
    assert again.to_the_end() == [records("interrupted", 0, 0, 4)]


def test_the_trigger_once_reads_all_in_its_only_micro_batch(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic("once", partitions=1)
    produce(broker, "once", p0=4)
    stream = streams(subscribe="once", maxOffsetsPerTrigger="1")
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset(start, ReadAllAvailable())
    assert stream.read(start, end) == records("once", 0, 0, 4)


def test_new_partitions_and_new_topics_are_read_from_their_beginning(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("grow-a", partitions=1)
    stream = streams(subscribePattern="grow-.*", startingOffsets="latest")
    assert stream.batch() == []
    admin.create_partitions("grow-a", 2)
    admin.create_topic("grow-b", partitions=1)
    produce(broker, "grow-a", p0=1, p1=2)
    produce(broker, "grow-b", p0=3)
    batches = stream.to_the_end()
    assert sorted(stream.records) == [
        *records("grow-a", 0, 0, 1),
        *records("grow-a", 1, 0, 2),
        *records("grow-b", 0, 0, 3),
    ]
    # What is new begins in the checkpoint before anything of it is read.
    assert not {record[:2] for record in batches[0]} & {("grow-a", 1), ("grow-b", 0)}


def test_a_pattern_that_selects_nothing_waits_for_a_topic(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    stream = streams(subscribePattern="to-come-.*")
    assert stream.batch() == []
    assert stream.batch() is None
    admin.create_topic("to-come-1", partitions=1)
    produce(broker, "to-come-1", p0=1)
    stream.to_the_end()
    assert stream.records == records("to-come-1", 0, 0, 1)


def test_the_limit_of_records_is_shared_in_proportion(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("shared", partitions=3)
    produce(broker, "shared", p0=30, p1=10, p2=1)
    stream = streams(subscribe="shared", maxOffsetsPerTrigger="12").stop_at_latest()
    batches = stream.to_the_end()
    assert [len(batch) for batch in batches] == [0, 12, 12, 12, 5]
    by_partition = Counter(record[1] for record in batches[1])
    assert by_partition[2] == 1
    assert by_partition[0] > 2 * by_partition[1] > 0
    assert len(set(stream.records)) == len(stream.records) == 41


def test_the_limit_of_bytes_holds_and_everything_is_read(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("bytes", partitions=2)
    # Batches of about 20 KB, so that the index knows where each begins.
    with Producer(broker.servers) as producer:
        for _ in range(20):
            producer.send_many("bytes", [b"x" * 1000] * 20, partition=0)
        producer.send_many("bytes", [b"x" * 1000] * 20, partition=1)
    stream = streams(subscribe="bytes", maxBytesPerTrigger="130k").stop_at_latest()
    sizes = [len(batch) for batch in stream.to_the_end()]
    assert sum(sizes) == len(set(stream.records)) == 420
    # 130 KB are six batches of 20 records; a partition takes one at least.
    assert all(60 <= size <= 140 for size in sizes[1:-1])
    assert len(sizes) >= 4


def test_a_micro_batch_waits_for_the_least_number_of_records(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("least", partitions=1)
    produce(broker, "least", p0=1)
    stream = streams(subscribe="least", minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    assert stream.batch() == []
    assert stream.batch() == records("least", 0, 0, 1), "the first one does not wait"
    produce(broker, "least", p0=2)
    assert stream.batch() is None
    produce(broker, "least", p0=1)
    assert stream.batch() == records("least", 0, 1, 4)
    produce(broker, "least", p0=1)
    rest = streams(stream.documents, subscribe="least", minOffsetsPerTrigger="3").stop_at_latest()
    assert rest.to_the_end() == [records("least", 0, 4, 5)]


def test_micro_batches_are_cut_into_tasks_as_batches_are(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("tasks", partitions=1)
    produce(broker, "tasks", p0=10)
    stream = streams(subscribe="tasks", minPartitions="4")
    stream.to_the_end()
    assert stream.records == records("tasks", 0, 0, 10)
    assert len(stream.reader.partitions(stream.documents[0], stream.documents[1])) == 4


def test_a_topic_that_is_not_there_is_named_at_once(streams: Callable[..., Stream]) -> None:
    with pytest.raises(OptionError, match="subscribe: there is no topic clickz; create it, or"):
        streams(subscribe="clickz").reader.initialOffset()


def test_an_offset_beyond_the_log_is_lost_unless_that_is_allowed(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("beyond", partitions=1)
    produce(broker, "beyond", p0=2)
    start = '{"beyond": {"0": 7}}'
    with pytest.raises(DataLost, match="beyond-0: records"):
        streams(subscribe="beyond", startingOffsets=start).reader.initialOffset()
    lenient = streams(subscribe="beyond", startingOffsets=start, failOnDataLoss="false")
    assert lenient.reader.initialOffset()["beyond"] == {"0": 2}


def test_the_document_of_a_checkpoint_is_a_start(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("handed-over", partitions=2)
    produce(broker, "handed-over", p0=3, p1=3)
    stream = streams(subscribe="handed-over", maxOffsetsPerTrigger="2")
    stream.batch()
    stream.batch()
    start = json.dumps(stream.documents[-1])
    other = streams(subscribe="handed-over", startingOffsets=start)
    assert other.reader.initialOffset() == stream.documents[-1]


def test_a_checkpoint_of_the_kafka_source_is_gone_on_from(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("mirrored", partitions=2)
    produce(broker, "mirrored", p0=3, p1=3)
    # Spark had planned the second of these micro-batches, and not done it.
    documents = [{"mirrored": {"1": 0, "0": 1}}, {"mirrored": {"1": 2, "0": 1}}]
    stream = streams([*documents], subscribe="mirrored")
    assert stream.repeated_batch() == records("mirrored", 1, 0, 2)
    stream.to_the_end()
    assert sorted(stream.records) == records("mirrored", 0, 1, 3) + records("mirrored", 1, 2, 3)


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_that_is_deleted_fails_the_stream_unless_that_is_allowed(
    broker: BrokerThread,
    admin: Admin,
    streams: Callable[..., Stream],
    is_created_again: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"deleted-{is_created_again}"
    admin.create_topic(topic, partitions=1)
    produce(broker, topic, p0=2)
    stream = streams(subscribe=topic)
    stream.to_the_end()
    admin.delete_topic(topic)
    fate = "deleted"
    if is_created_again:
        admin.create_topic(topic, partitions=1)
        produce(broker, topic, p0=5)
        fate = "deleted and created again"
    with pytest.raises(DataLost, match=f"the topic {topic} was {fate}.*Set failOnDataLoss"):
        stream.batch()
    lenient = streams(stream.documents, subscribe=topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        batches = lenient.to_the_end()
    assert fate in caplog.text
    new = records(topic, 0, 0, 5) if is_created_again else []
    assert [record for batch in batches for record in batch] == new


def test_records_that_retention_took_fail_the_stream_unless_that_is_allowed(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("retained", partitions=1, configs={"segment.bytes": 1024})
    stream = streams(subscribe="retained")
    assert stream.batch() == []
    produce(broker, "retained", p0=40)
    admin.alter_configs("retained", {"retention.bytes": 2048})
    where = TopicPartition("retained", 0)
    while (earliest := admin.list_offsets({where: "earliest"})[where].offset) == 0:
        pass
    with pytest.raises(DataLost, match=r"retained-0: records \[0, \d+\) are gone: retention"):
        stream.batch()
    lenient = streams(stream.documents, subscribe="retained", failOnDataLoss="false")
    assert lenient.repeated_batch()[-1] == ("retained", 0, 39)
    assert lenient.repeated_batch()[0][2] >= earliest
    assert lenient.batch() is None


def test_deselected_partitions_are_left_out_without_a_warning(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    for topic in ("kept", "dropped"):
        admin.create_topic(topic, partitions=1)
    stream = streams(subscribe="kept,dropped")
    stream.to_the_end()
    admin.delete_topic("dropped")
    produce(broker, "kept", p0=1)
    narrowed = streams(stream.documents, subscribe="kept")
    assert narrowed.batch() == records("kept", 0, 0, 1)
    assert "dropped" not in stream.documents[-1]


def test_a_planned_micro_batch_is_repeated_after_a_change_of_the_selection(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    for topic in ("stays", "goes"):
        admin.create_topic(topic, partitions=1)
        produce(broker, topic, p0=3)
    stream = streams(subscribe="stays,goes")
    assert stream.batch() == []
    planned = stream.batch()
    assert planned is not None and len(planned) == 6
    narrowed = streams(stream.documents, subscribe="stays")
    assert narrowed.repeated_batch() == planned
    produce(broker, "goes", p0=1)
    produce(broker, "stays", p0=1)
    assert narrowed.batch() == records("stays", 0, 3, 4)


def test_a_broker_that_cannot_be_reached_is_named_within_the_deadline(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    options = {"millrace.servers": "127.0.0.1:1", "subscribe": "clicks", "deadlineMs": "200"}
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        streams(**options).reader.initialOffset()


def test_a_source_without_records_does_not_hold_up_the_others_of_its_query(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream], monkeypatch: Any
) -> None:
    admin.create_topic("quiet", partitions=1)
    stream = streams(subscribe="quiet")
    assert stream.batch() == []
    waits: list[int] = []
    ask = stream.reader._batches.next_end

    def next_end(start: Any, *, is_limited: bool, wait_ms: int) -> Any:
        waits.append(wait_ms)
        return ask(start, is_limited=is_limited, wait_ms=wait_ms)

    monkeypatch.setattr(stream.reader._batches, "next_end", next_end)
    assert stream.batch() is None
    stream.reader.commit(stream.documents[-1])
    assert stream.batch() is None
    assert stream.batch() is None
    assert [wait > 0 for wait in waits] == [True, False, True]
