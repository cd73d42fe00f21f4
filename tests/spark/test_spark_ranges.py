"""Planning and reading against a real broker, without Spark around them."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millrace._arrow.columns import (
    BATCH_BYTES_MAX,
    ROWS_MAX,
    arrow_batches,
    arrow_schema,
)
from millrace.errors import ConnectionFailed, ForeignPort, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import DataLost, OptionError, ReadTimedOut
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.reading import planner
from millrace_spark.reading.planner import plan
from millrace_spark.reading.range_reader import FETCH_BYTES, read_range
from millrace_spark.reading.ranges import LogExtent, OffsetRange
from millrace_spark.reading.schema import COLUMNS
from millrace_spark.retry import start_with_retry


@pytest.fixture(scope="module")
def admin(broker: BrokerThread) -> Iterator[Admin]:
    """A connected admin client."""
    with Admin(broker.servers) as connected:
        yield connected


def options_for(broker: BrokerThread, topic: str, **options: str) -> ReadOptions:
    """Parsed options of a batch read of `topic`, or of what `options` select instead."""
    given = {"millrace.servers": broker.servers, "subscribe": topic, **options}
    if "subscribePattern" in options or "assign" in options:
        del given["subscribe"]
    return parse_read_options(given, is_stream=False)


def read_batches(wanted: OffsetRange, options: ReadOptions, *columns: str) -> list[pa.RecordBatch]:
    """What an executor hands to Spark for a range."""
    return [
        batch
        for fetch in read_range(wanted, options)
        for batch in arrow_batches(fetch, columns=columns, end_offset=wanted.end_offset)
    ]


def read_offsets(options: ReadOptions, ranges: list[OffsetRange]) -> list[int]:
    """The offsets of all records of some ranges, in the order read."""
    return [
        offset
        for wanted in ranges
        for batch in read_batches(wanted, options, "offset")
        for offset in batch.column("offset").to_pylist()
    ]


def test_split_ranges_read_every_record_once(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("split", partitions=1)
    with Producer(broker.servers) as producer:
        for first in range(0, 1000, 100):
            producer.send_many("split", [b"%d" % n for n in range(first, first + 100)])
    options = options_for(broker, "split", maxRecordsPerPartition="130")
    ranges = plan(options)
    assert len(ranges) == 8
    assert read_offsets(options, ranges) == list(range(1000))


def test_batches_are_bounded_in_rows_and_all_have_the_same_schema(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("rows", partitions=1)
    with Producer(broker.servers) as producer:
        producer.send_many("rows", [b"x"] * 25_000)
    options = options_for(broker, "rows")
    (wanted,) = plan(options)
    batches = read_batches(wanted, options, *COLUMNS)
    assert sum(batch.num_rows for batch in batches) == 25_000
    assert max(batch.num_rows for batch in batches) == ROWS_MAX
    assert all(batch.schema.equals(arrow_schema(tuple(COLUMNS))) for batch in batches)


def test_batches_of_large_records_are_bounded_in_bytes(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("large", partitions=1)
    with Producer(broker.servers, compression="zstd") as producer:
        producer.send_many("large", [bytes(900_000)] * 30)
    options = options_for(broker, "large")
    (wanted,) = plan(options)
    batches = read_batches(wanted, options, "value")
    assert sum(batch.num_rows for batch in batches) == 30
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES_MAX


def test_fetches_of_a_range_are_received_into_at_most_two_buffers(
    broker: BrokerThread, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(size: int) -> bytearray:
        made.append(size)
        return bytearray(size)

    monkeypatch.setattr("millrace_wire.frame_buffers.bytearray", counted, raising=False)
    admin.create_topic("buffers", partitions=1)
    with Producer(broker.servers) as producer:
        producer.send_many("buffers", [bytes(900_000)] * 100)
    made.clear()
    options = options_for(broker, "buffers")
    (wanted,) = plan(options)
    fetch_sizes = []
    for fetch in read_range(wanted, options):
        fetch_sizes.append(len(fetch.view))
        del fetch
    assert len(fetch_sizes) > 3
    assert max(fetch_sizes) > FETCH_BYTES // 2
    assert 1 <= len([size for size in made if size > FETCH_BYTES // 2]) <= 2


def test_times_select_records_from_the_first_as_late_to_the_last_before(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("times", partitions=2)
    with Producer(broker.servers) as producer:
        producer.send_many(
            "times", [b"x"] * 10, timestamps_ms=range(1_000, 2_000, 100), partition=0
        )
        producer.send_many("times", [b"x"] * 2, timestamps_ms=[1_000, 1_100], partition=1)
    ranges = plan(
        options_for(
            broker, "times", startingTimestamp="1300", endingTimestamp="1970-01-01T00:00:01.700Z"
        )
    )
    assert [(r.partition, r.start_offset, r.end_offset) for r in ranges] == [(0, 3, 7)]


def test_an_empty_topic_has_no_ranges(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("nothing", partitions=3)
    assert plan(options_for(broker, "nothing")) == []


def test_an_unknown_topic_is_an_error_that_names_it(broker: BrokerThread) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        plan(options_for(broker, "nowhere"))


def test_offsets_of_a_partition_there_is_not_are_refused(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("narrow", partitions=1)
    with pytest.raises(OptionError, match="startingOffsets: there is no narrow-1; narrow has 1,"):
        plan(options_for(broker, "narrow", startingOffsets='{"narrow": {"1": 0}}'))


def test_planning_gives_up_at_the_deadline_when_no_broker_answers() -> None:
    unconnected = parse_read_options(
        {"millrace.servers": "127.0.0.1:1", "subscribe": "x", "deadlineMs": "200"}, is_stream=False
    )
    with pytest.raises(
        ConnectionFailed, match=r"no broker at 127\.0\.0\.1:1.*until deadlineMs=200"
    ):
        plan(unconnected)


def test_a_broker_that_is_away_for_a_moment_is_tried_again() -> None:
    class Client:
        def start(self) -> None:
            if len(made) < 3:
                raise ConnectionFailed("no broker yet")

    made: list[Client] = []

    def make() -> Client:
        made.append(Client())
        return made[-1]

    assert start_with_retry(make, deadline_ms=60_000) is made[2]


def test_a_port_that_is_no_brokers_is_not_tried_again() -> None:
    started: list[None] = []

    class Client:
        def start(self) -> None:
            started.append(None)
            raise ForeignPort("it speaks HTTP")

    with pytest.raises(ForeignPort, match=r"^it speaks HTTP$"):
        start_with_retry(Client, deadline_ms=600_000)
    assert len(started) == 1


def test_a_read_gives_up_when_nothing_comes_before_the_deadline(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("slow", partitions=1)
    with Producer(broker.servers) as producer:
        producer.send_many("slow", [b"x"] * 5)
    options = options_for(broker, "slow", deadlineMs="200")
    (wanted,) = plan(options)
    beyond = replace(wanted, end_offset=6)
    with pytest.raises(ReadTimedOut, match=r"slow-0 \[0, 6\): no records within deadlineMs=200"):
        read_offsets(options, [beyond])


def test_records_that_retention_removed_after_planning_fail_or_are_skipped(
    broker: BrokerThread, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic("short", partitions=1, configs={"segment.bytes": 1024})
    with Producer(broker.servers) as producer:
        for _ in range(10):
            producer.send_many("short", [bytes(100)] * 10)
    failing = options_for(broker, "short")
    ranges = plan(failing)
    assert [(r.start_offset, r.end_offset) for r in ranges] == [(0, 100)]
    admin.alter_configs("short", {"retention.bytes": 2048})
    where = ranges[0].where
    # It goes on until two segments are left.
    while admin.list_offsets({where: "earliest"})[where].offset < 80:
        pass
    with pytest.raises(DataLost, match=r"short-0: records \[0, \d+\) are gone: retention"):
        read_offsets(failing, ranges)
    with caplog.at_level(logging.WARNING, "millrace_spark"):
        left = read_offsets(options_for(broker, "short", failOnDataLoss="false"), ranges)
    assert left == list(range(80, 100))
    assert "skipped" in caplog.text


def test_records_that_retention_removes_during_planning_are_not_planned(
    broker: BrokerThread, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create_topic("while", partitions=1, configs={"segment.bytes": 1024})
    with Producer(broker.servers) as producer:
        for _ in range(10):
            producer.send_many("while", [bytes(100)] * 10)
    asked: list[int] = []
    extents_now = planner.extents

    def extents(*args: Any) -> dict[TopicPartition, LogExtent]:
        """What the log held; then retention comes, when that is known and nothing else is."""
        found = extents_now(*args)
        if not asked:
            admin.alter_configs("while", {"retention.bytes": 2048})
            where = TopicPartition("while", 0)
            while admin.list_offsets({where: "earliest"})[where].offset < 80:
                pass
        asked.append(1)
        return found

    options = options_for(broker, "while")
    monkeypatch.setattr(planner, "extents", extents, raising=True)
    (wanted,) = plan(options)
    assert (wanted.start_offset, wanted.end_offset, len(asked)) == (80, 100, 2)


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_deleted_after_planning_is_not_mistaken_for_its_successor(
    broker: BrokerThread, admin: Admin, is_created_again: bool
) -> None:
    name = f"gone-{is_created_again}"
    with Producer(broker.servers) as producer:
        admin.create_topic(name, partitions=1)
        producer.send_many(name, [b"old"] * 10)
        failing = options_for(broker, name)
        ranges = plan(failing)
        admin.delete_topic(name)
    if is_created_again:
        admin.create_topic(name, partitions=1)
        with Producer(broker.servers) as producer:
            producer.send_many(name, [b"new"] * 20)
    with pytest.raises(DataLost, match="created again" if is_created_again else "was deleted"):
        read_offsets(failing, ranges)
    assert read_offsets(options_for(broker, name, failOnDataLoss="false"), ranges) == []


def test_a_pattern_reads_the_topics_of_that_name_and_not_those_of_the_broker(
    broker: BrokerThread, admin: Admin
) -> None:
    for name in ("shop-a", "shop-b", "shop-a-old"):
        admin.create_topic(name, partitions=1)
        with Producer(broker.servers) as producer:
            producer.send_many(name, [b"x"])
    ranges = plan(options_for(broker, "", subscribePattern="^shop-.$|__.*"))
    assert [found.topic for found in ranges] == ["shop-a", "shop-b"]
    assert plan(options_for(broker, "", subscribePattern="^shop$")) == []


def test_assign_reads_these_partitions_only(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("parts", partitions=3)
    with Producer(broker.servers) as producer:
        for partition in range(3):
            producer.send_many("parts", [b"x"] * 3, partition=partition)
    ranges = plan(options_for(broker, "", assign='{"parts": [2, 0]}'))
    assert [found.partition for found in ranges] == [0, 2]
    with pytest.raises(OptionError, match="assign: there is no parts-3; parts has 3, counted"):
        plan(options_for(broker, "", assign='{"parts": [3]}'))


def test_offsets_by_timestamp_bound_each_partition_by_its_own_time(
    broker: BrokerThread, admin: Admin
) -> None:
    admin.create_topic("each", partitions=3)
    with Producer(broker.servers) as producer:
        for partition in range(2):
            producer.send_many(
                "each", [b"x"] * 10, timestamps_ms=range(1_000, 2_000, 100), partition=partition
            )
    times = {
        "startingOffsetsByTimestamp": '{"each": {"0": 1150, "1": 1900, "2": 1}}',
        "endingOffsetsByTimestamp": '{"each": {"0": 1400}}',
    }
    ranges = plan(options_for(broker, "each", **times))
    assert [(r.partition, r.start_offset, r.end_offset) for r in ranges] == [(0, 2, 4), (1, 9, 10)]
    with pytest.raises(OptionError, match="no record of each-2 is that late"):
        plan(options_for(broker, "each", **times, startingOffsetsByTimestampStrategy="error"))


def test_splits_have_equal_bytes_though_records_do_not(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("uneven", partitions=2)
    with Producer(broker.servers) as producer:
        for size in range(200):
            producer.send_many("uneven", [bytes(20 * size)] * 10, partition=0)
        producer.send_many("uneven", [b"x"] * 10, partition=1)
    options = options_for(broker, "uneven", maxPartitionBytes="512k")
    ranges = plan(options)
    large = [found for found in ranges if found.partition == 0]
    assert [found.partition for found in ranges] == [0] * 8 + [1]  # 4.0 MB by 512 KiB
    assert read_offsets(options, large) == list(range(2000))
    sizes = [
        sum(batch.nbytes for batch in read_batches(found, options, "value")) for found in large
    ]
    assert max(sizes) < 1.3 * min(sizes)
    assert len(large[0]) > 2 * len(large[-1])


def test_at_least_min_partitions_by_bytes(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic("few", partitions=2)
    with Producer(broker.servers) as producer:
        producer.send_many("few", [bytes(100)] * 3_000, partition=0)
        producer.send_many("few", [bytes(100)] * 1_000, partition=1)
    options = options_for(broker, "few", minPartitions="8")
    ranges = plan(options)
    assert 8 <= len(ranges) <= 10
    assert sum(found.partition == 0 for found in ranges) == 6
    assert read_offsets(options, ranges) == [*range(3_000), *range(1_000)]


def test_a_compacted_partition_is_read_with_its_gaps(broker: BrokerThread, admin: Admin) -> None:
    admin.create_topic(
        "latest",
        partitions=1,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": 16_384,
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    with Producer(broker.servers) as producer:
        for first in range(0, 2_000, 100):
            producer.send_many(
                "latest",
                [bytes(100)] * 100,
                keys=[b"%d" % (n % 7) for n in range(first, first + 100)],
            )
    options = options_for(broker, "latest", minPartitions="4")
    while len(read := read_offsets(options, plan(options))) > 1_000:
        pass
    assert read == sorted(set(read))
    assert read[-1] == 1_999


@pytest.mark.parametrize(("kind", "number"), [("CreateTime", 0), ("LogAppendTime", 1)])
def test_timestamp_type_same_as_kafka(
    broker: BrokerThread, admin: Admin, kind: str, number: int
) -> None:
    admin.create_topic(f"in-{kind}", partitions=1, configs={"message.timestamp.type": kind})
    with Producer(broker.servers) as producer:
        producer.send_many(f"in-{kind}", [b"x"] * 3, timestamps_ms=5)
    options = options_for(broker, f"in-{kind}")
    (wanted,) = plan(options)
    (batch,) = read_batches(wanted, options, "timestampType", "timestamp")
    assert batch.column("timestampType").to_pylist() == [number] * 3
    is_as_produced = [time.timestamp() == 0.005 for time in batch.column("timestamp").to_pylist()]
    assert is_as_produced == [number == 0] * 3


def test_records_are_read_at_the_address_that_the_broker_advertises() -> None:
    """Executors know the address the driver was given, which may be no broker's own."""
    passed: list[socket.socket] = []

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = door.accept()
                far = socket.create_connection(("127.0.0.1", hidden.port))
                passed.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=pass_on, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        with BrokerThread(advertise=address) as hidden:
            server = threading.Thread(target=serve)
            server.start()
            with Admin(hidden.servers) as admin:
                admin.create_topic("far", partitions=1)
            with Producer(hidden.servers) as producer:
                producer.send_many("far", [b"x"] * 10)
            options = options_for(hidden, "far")
            (wanted,) = plan(options)
            before = len(passed)
            assert read_offsets(options, [wanted]) == list(range(10))
            assert len(passed) > before
        door.shutdown(socket.SHUT_RDWR)
        server.join()
    for each in passed:
        each.close()
