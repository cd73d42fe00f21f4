"""Options of Spark's Kafka source and sink that are the same here, against a real broker.

Each fact is one that Spark's guide to Kafka states, or its `KafkaSourceProvider`; the table in
`docs/spark-kafka-options.md` names these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from millrace._arrow.columns import arrow_batches
from millrace.errors import UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options.bounds import AtTime, Edge
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.options.write_options import parse_write_options
from millrace_spark.reading.planner import plan
from millrace_spark.reading.range_reader import read_range
from millrace_spark.streaming.log_client import LogClient
from millrace_spark.streaming.micro_batches import MicroBatches
from millrace_spark.streaming.stream_offsets import StreamOffsets
from millrace_spark.writing.row_writer import write_rows

Range = tuple[str, int, int, int]
"""`(topic, partition, start_offset, end_offset)`"""


@pytest.fixture(scope="module")
def admin(broker: BrokerThread) -> Iterator[Admin]:
    """A connected admin client."""
    with Admin(broker.servers) as connected:
        yield connected


def made(broker: BrokerThread, admin: Admin, topic: str, *counts: int) -> str:
    """A topic with so many records in each partition; record n has the timestamp 1000 + 100 n."""
    admin.create_topic(topic, partitions=len(counts))
    with Producer(broker.servers) as producer:
        for partition, count in enumerate(counts):
            times = range(1_000, 1_000 + 100 * count, 100)
            producer.send_many(topic, [b"x"] * count, timestamps_ms=times, partition=partition)
    return topic


def batch(broker: BrokerThread, **options: str) -> ReadOptions:
    """The options of a batch read."""
    given = {"millrace.servers": broker.servers, "deadlineMs": "5000", **options}
    return parse_read_options(given, is_stream=False)


def ranges(broker: BrokerThread, **options: str) -> list[Range]:
    """What a batch with these options reads."""
    found = plan(batch(broker, **options))
    return [(each.topic, each.partition, each.start_offset, each.end_offset) for each in found]


@pytest.fixture
def streams(broker: BrokerThread) -> Iterator[Callable[..., MicroBatches]]:
    """Makes streams without Spark around them."""
    watches: list[LogClient] = []

    def make(**options: str) -> MicroBatches:
        given = {"millrace.servers": broker.servers, "deadlineMs": "5000", **options}
        read = parse_read_options(given, is_stream=True)
        watches.append(LogClient(read))
        return MicroBatches(read, watches[-1])

    yield make
    for watch in watches:
        watch.close()


def next_end(stream: MicroBatches, start: StreamOffsets, *, wait_ms: int = 0) -> StreamOffsets:
    """The end of the next micro-batch under a trigger that has limits."""
    return stream.next_end(start, is_limited=True, wait_ms=wait_ms)


def test_subscribe_reads_all_partitions_of_the_topics_named(
    broker: BrokerThread, admin: Admin
) -> None:
    made(broker, admin, "sub-a", 2, 1)
    made(broker, admin, "sub-b", 3)
    wanted = [("sub-a", 0, 0, 2), ("sub-a", 1, 0, 1), ("sub-b", 0, 0, 3)]
    assert ranges(broker, subscribe=" sub-b, ,sub-a") == wanted
    with pytest.raises(UnknownTopicOrPartition, match="sub-c"):
        ranges(broker, subscribe="sub-a,sub-c")


def test_subscribe_pattern_is_found_anywhere_in_a_name(broker: BrokerThread, admin: Admin) -> None:
    for topic in ("eu-orders", "orders", "orders-eu"):
        made(broker, admin, topic, 1)

    def topics(pattern: str) -> list[str]:
        return [topic for topic, *_ in ranges(broker, subscribePattern=pattern)]

    assert topics("orders") == ["eu-orders", "orders", "orders-eu"]
    assert topics("^orders") == ["orders", "orders-eu"]
    assert topics(" ^orders$ ") == ["orders"]


def test_assign_reads_the_partitions_named(broker: BrokerThread, admin: Admin) -> None:
    made(broker, admin, "assigned", 1, 2, 3)
    assigned = ranges(broker, assign='{"assigned": [2, 0]}')
    assert assigned == [("assigned", 0, 0, 1), ("assigned", 2, 0, 3)]


def test_only_one_of_subscribe_subscribe_pattern_and_assign(broker: BrokerThread) -> None:
    with pytest.raises(OptionError, match="conflicts with"):
        batch(broker, subscribe="a", subscribePattern="a")
    with pytest.raises(OptionError, match="one of subscribe, subscribePattern, assign"):
        batch(broker)


def test_starting_offsets_of_a_batch(broker: BrokerThread, admin: Admin) -> None:
    topic = made(broker, admin, "starting", 5, 5)
    whole = [(topic, 0, 0, 5), (topic, 1, 0, 5)]
    assert ranges(broker, subscribe=topic) == whole
    assert ranges(broker, subscribe=topic, startingOffsets="Earliest") == whole
    named = '{"starting": {"0": 3, "1": -2}}'
    found = ranges(broker, subscribe=topic, startingOffsets=named)
    assert found == [(topic, 0, 3, 5), (topic, 1, 0, 5)]
    for latest in ("latest", '{"starting": {"0": -1, "1": 0}}'):
        with pytest.raises(OptionError, match=r"startingOffsets: .*cannot be"):
            batch(broker, subscribe=topic, startingOffsets=latest)


def test_starting_offsets_of_a_stream(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "begun", 5, 5)

    def start(**options: str) -> list[int]:
        offsets = streams(subscribe=topic, **options).start().offsets
        return [offsets[TopicPartition(topic, partition)] for partition in (0, 1)]

    assert start() == start(startingOffsets="latest") == [5, 5]
    assert start(startingOffsets="earliest") == [0, 0]
    assert start(startingOffsets='{"begun": {"0": 3, "1": -1}}') == [3, 5]
    assert start(startingOffsets='{"begun": {"0": -2, "1": 5}}') == [0, 5]


def test_ending_offsets(broker: BrokerThread, admin: Admin) -> None:
    topic = made(broker, admin, "ending", 5, 5)
    whole = [(topic, 0, 0, 5), (topic, 1, 0, 5)]
    assert ranges(broker, subscribe=topic, endingOffsets="latest") == whole
    named = '{"ending": {"0": 3, "1": -1}}'
    found = ranges(broker, subscribe=topic, endingOffsets=named)
    assert found == [(topic, 0, 0, 3), (topic, 1, 0, 5)]
    for earliest in ("earliest", '{"ending": {"0": -2, "1": 5}}'):
        with pytest.raises(OptionError, match=r"endingOffsets: .*cannot be"):
            batch(broker, subscribe=topic, endingOffsets=earliest)


def test_starting_timestamp_is_the_first_record_as_late(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "since", 5, 3)
    found = ranges(broker, subscribe=topic, startingTimestamp="1101")
    assert found == [(topic, 0, 2, 5), (topic, 1, 2, 3)]
    begun = streams(subscribe=topic, startingTimestamp="1101").start()
    assert list(begun.offsets.values()) == [2, 2]
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"since": {"0": 0}}'}
    assert batch(broker, subscribe=topic, startingTimestamp="7", **given).start == AtTime(7)


def test_ending_timestamp_is_before_the_first_record_as_late(
    broker: BrokerThread, admin: Admin
) -> None:
    topic = made(broker, admin, "until", 5, 2)
    found = ranges(broker, subscribe=topic, endingTimestamp="1200")
    assert found == [(topic, 0, 0, 2), (topic, 1, 0, 2)]
    given = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"until": {"0": 0}}'}
    assert batch(broker, subscribe=topic, endingTimestamp="7", **given).end == AtTime(7)


def test_times_by_partition_go_before_offsets(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "times", 5, 5)
    given = {
        "startingOffsetsByTimestamp": '{"times": {"0": 1000, "1": 1250}}',
        "startingOffsets": '{"times": {"0": 4, "1": 4}}',
        "endingOffsetsByTimestamp": '{"times": {"0": 1300, "1": 9000}}',
        "endingOffsets": '{"times": {"0": 5, "1": 5}}',
    }
    found = ranges(broker, subscribe=topic, **given)
    assert found == [(topic, 0, 0, 3), (topic, 1, 3, 5)]
    starts = {name: text for name, text in given.items() if name.startswith("starting")}
    assert list(streams(subscribe=topic, **starts).start().offsets.values()) == [0, 3]


def test_starting_offsets_by_timestamp_strategy(broker: BrokerThread, admin: Admin) -> None:
    topic = made(broker, admin, "late", 5, 1)
    given = {"subscribe": topic, "startingTimestamp": "1200"}
    read = ranges(broker, **given, startingOffsetsByTimestampStrategy="latest")
    assert read == ranges(broker, **given) == [(topic, 0, 2, 5)]
    with pytest.raises(OptionError, match="startingTimestamp: no record of late-1"):
        ranges(broker, **given, startingOffsetsByTimestampStrategy="ERROR")


def test_fail_on_data_loss(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "lost", 5)
    beyond = {"subscribe": topic, "startingOffsets": '{"lost": {"0": 9}}'}
    for is_failing in ({}, {"failOnDataLoss": "true"}):
        with pytest.raises(DataLost, match="lost-0"):
            ranges(broker, **beyond, **is_failing)
        with pytest.raises(DataLost, match="lost-0"):
            streams(**beyond, **is_failing).start()
    assert ranges(broker, **beyond, failOnDataLoss="False") == []
    begun = streams(**beyond, failOnDataLoss="false").start()
    assert begun.offsets == {TopicPartition(topic, 0): 5}


def test_include_headers_adds_a_column_that_is_null_without_headers(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("marked", partitions=1)
    headers = [(("a", b"1"), ("a", None)), (), (("ü", b""),), ()]
    with Producer(broker.servers) as producer:
        producer.send_many("marked", [b"x"] * 4, headers=headers, partition=0)
    found: list[object] = []
    # The second range begins within a batch of records.
    for starting in ('{"marked": {"0": 0}}', '{"marked": {"0": 1}}'):
        read = batch(broker, subscribe="marked", includeHeaders="true", startingOffsets=starting)
        (wanted,) = plan(read)
        for fetch in read_range(wanted, read):
            for rows in arrow_batches(fetch, columns=("headers",), end_offset=4):
                rows.validate(full=True)
                found += rows.column("headers").to_pylist()
    first = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    rest = [None, [{"key": "ü", "value": b""}], None]
    assert found == [first, *rest, *rest]


def test_max_records_per_partition_beside_min_partitions(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "cut", 10, 3)
    found = ranges(broker, subscribe=topic, maxRecordsPerPartition="4")
    lengths = [(partition, end - start) for _, partition, start, end in found]
    assert lengths == [(0, 3), (0, 3), (0, 4), (1, 3)]
    more = ranges(broker, subscribe=topic, maxRecordsPerPartition="4", minPartitions="6")
    assert len(more) >= 6
    assert max(end - start for _, _, start, end in more) <= 4
    given = {"startingOffsets": "earliest", "maxRecordsPerPartition": "4", "minPartitions": "6"}
    stream = streams(subscribe=topic, **given)
    start = stream.start()
    tasks = stream.ranges(start, next_end(stream, start))
    assert [(t.topic, t.partition, t.start_offset, t.end_offset) for t in tasks] == more


def test_min_partitions_are_at_least_so_many(broker: BrokerThread, admin: Admin) -> None:
    topic = made(broker, admin, "spread", 8, 2)
    found = ranges(broker, subscribe=topic, minPartitions="5")
    assert len(found) >= 5
    assert sum(end - start for *_, start, end in found) == 10


def test_max_offsets_per_trigger_is_shared_by_backlog(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "limited", 30, 10, 0)
    stream = streams(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    end = next_end(stream, stream.start())
    assert list(end.offsets.values()) == [6, 2, 0]


def test_min_offsets_per_trigger_delays_up_to_max_trigger_delay(
    broker: BrokerThread, admin: Admin, streams: Callable[..., MicroBatches]
) -> None:
    topic = made(broker, admin, "delayed", 3)
    given = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "4"}
    for delay, is_delayed in (("1h", True), ("20ms", False)):
        stream = streams(**given, maxTriggerDelay=delay)
        first = next_end(stream, stream.start())
        assert first != stream.start(), "the first one does not wait"
        with Producer(broker.servers) as producer:
            producer.send_many(topic, [b"x"] * 2, partition=0)
        second = next_end(stream, first, wait_ms=0 if is_delayed else 60_000)
        assert (second == first) == is_delayed
        with Producer(broker.servers) as producer:
            producer.send_many(topic, [b"x"] * 4, partition=0)
        assert next_end(stream, second) != second, "enough waits"
    read = parse_read_options({"millrace.servers": "a:1", **given}, is_stream=True)
    assert read.max_trigger_delay_ms == 15 * 60 * 1000


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
    ],
)
def test_a_setting_that_kafkas_source_refuses_is_refused(name: str, kind: str) -> None:
    given = {"millrace.servers": "a:1", "subscribe": "t", name.upper(): "x"}
    with pytest.raises(OptionError) as caught:
        parse_read_options(given, is_stream=kind == "stream")
    assert caught.value.option == name.upper()


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("name", ["kafka.key.serializer", "kafka.value.serializer"])
def test_a_setting_that_kafkas_sink_refuses_is_refused(name: str, kind: str) -> None:
    given = {"millrace.servers": "a:1", "topic": "t", name: "x"}
    with pytest.raises(OptionError, match=f"^{name}: keys and values are bytes"):
        parse_write_options(given, is_stream=kind == "stream")


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_an_end_is_refused_in_a_stream(name: str) -> None:
    with pytest.raises(OptionError, match=f"^{name}: is for batch reads"):
        parse_read_options({"millrace.servers": "a", "subscribe": "t", name: "{}"}, is_stream=True)


def test_the_starts_of_batches_and_streams_differ(broker: BrokerThread) -> None:
    given = {"millrace.servers": broker.servers, "subscribe": "t"}
    assert parse_read_options(given, is_stream=False).start is Edge.EARLIEST
    assert parse_read_options(given, is_stream=True).start is Edge.LATEST


def test_the_option_topic_wins_over_the_column_and_headers_need_no_include_headers(
    broker: BrokerThread, admin: Admin
) -> None:
    for topic in ("named", "of-the-column"):
        admin.create_topic(topic, partitions=1)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    row = pa.record_batch(
        {
            "value": pa.array([b"v"]),
            "headers": pa.array([[{"key": "h", "value": b"1"}]], kind),
            "topic": pa.array(["of-the-column"]),
        }
    )
    for include in ({}, {"includeHeaders": "false"}, {"includeHeaders": "true"}):
        given = {"millrace.servers": broker.servers, "topic": " named ", **include}
        options = parse_write_options(given, is_stream=False)
        tally = write_rows(iter([row]), ("value", "headers"), options)
        assert tally.spans.keys() == {("named", 0)}
    with Consumer(broker.servers) as consumer:
        consumer.assign([("named", 0)], start="earliest")
        found = [consumer.getone(timeout_ms=10_000) for _ in range(3)]
    assert [record and record.headers for record in found] == [(("h", b"1"),)] * 3
