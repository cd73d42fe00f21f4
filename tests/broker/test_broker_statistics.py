"""The statistics of a broker after sequences of requests on a real socket and a real disk."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator

import pytest

from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.messages.statistics import (
    DescribeStatisticsRequest,
    DescribeStatisticsResponse,
)
from millrace_server.limits import Limits
from millrace_server.log import FlushTicket
from millrace_server.net.output import SMALL_SLICE_BYTES
from millrace_server.partitions.partition_table import NotOpenYet
from millrace_server.statistics import metrics
from millrace_server.statistics.requests import UNTIMED
from millrace_server.testing import Broker, BrokerThread
from tests.broker.wire import Wire, batch, connect, connect_text, fetch_request, until

REQUESTS = "millrace_requests_total"
ERRORS = "millrace_request_errors_total"
DURATION = "millrace_request_duration_seconds"


class ColdPages:
    """Says of every range that it is not in the page cache, while it is told to."""

    is_on = False

    def is_cold(self, *_: object) -> bool:
        return self.is_on


async def test_requests_are_counted_by_api(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    for _ in range(3):
        await wire.produce("t", batch(b"v"))
    await wire.fetch("t", 0)
    statistics = broker.statistics()
    counts = {
        api: statistics.value(REQUESTS, dialect="native", api=api)
        for api in ("Hello", "CreateTopics", "Produce", "Fetch", "Heartbeat", "unknown")
    }
    assert counts == {
        "Hello": 1, "CreateTopics": 1, "Produce": 3, "Fetch": 1, "Heartbeat": 0, "unknown": 0,
    }  # fmt: skip
    assert statistics.value(REQUESTS) == 6
    assert statistics.value(ERRORS) == 0


async def test_each_result_that_is_an_error_is_counted(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    results = await wire.produce_all(
        [("t", 0, batch(b"v")), ("t", 7, batch(b"v")), ("none", 0, batch(b"v"))]
    )
    assert [each.error_code for each in results] == [0, 3, 3]
    await wire.produce("t", b"\0" * 61)
    await wire.fetch("t", 99)
    await wire.ask(MetadataRequest(("none", "t")), MetadataResponse)
    statistics = broker.statistics()
    found = {
        (api, error): statistics.value(ERRORS, api=api, error=error)
        for api in ("Produce", "Fetch", "Metadata")
        for error in ("UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE")
    }
    assert found == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Produce", "OFFSET_OUT_OF_RANGE"): 0,
        ("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"): 0,
        ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("Metadata", "OFFSET_OUT_OF_RANGE"): 0,
    }
    assert statistics.value(ERRORS, api="Produce") == 3


async def test_a_refused_request_is_one_error(broker: Broker, wire: Wire) -> None:
    wire.send_body(777, b"")
    assert (await wire.refusal())[0] is ErrorCode.UNKNOWN_API
    wire.send_body(ApiKey.FETCH, b"", version=9)
    assert (await wire.refusal())[0] is ErrorCode.UNSUPPORTED_VERSION
    wire.send_body(ApiKey.FETCH, b"\0")
    assert (await wire.refusal())[0] is ErrorCode.INVALID_REQUEST
    statistics = broker.statistics()
    assert statistics.value(REQUESTS, api="unknown") == 1
    assert statistics.value(ERRORS, api="unknown", error="UNKNOWN_API") == 1
    assert statistics.value(ERRORS, api="Fetch", error="UNSUPPORTED_VERSION") == 1
    assert statistics.value(ERRORS, api="Fetch", error="INVALID_REQUEST") == 1
    assert statistics.value(ERRORS) == 3


async def test_a_frame_that_is_too_long_is_an_error_of_no_api(broker: Broker) -> None:
    async with connect(broker.port, hello=False) as wire:
        wire.writer.write((1 << 20).to_bytes(4, "big"))
        assert (await wire.refusal())[0] is ErrorCode.FRAME_TOO_LARGE
    assert broker.statistics().value(ERRORS, api="unknown", error="FRAME_TOO_LARGE") == 1


async def test_a_batch_with_acks_0_that_is_refused_is_an_error(broker: Broker, wire: Wire) -> None:
    wire.send(ProduceRequest(0, 0, (ProducePartition("none", 0, batch(b"v")),)))
    assert await wire.closed() == b""
    error = "UNKNOWN_TOPIC_OR_PARTITION"
    assert broker.statistics().value(ERRORS, api="Produce", error=error) == 1


async def test_the_first_request_of_an_api_is_timed_and_then_one_in_sixteen(
    broker: Broker, wire: Wire
) -> None:
    for asked in range(1, 2 * (UNTIMED + 1) + 1):
        await wire.ask(MetadataRequest(()), MetadataResponse)
        timed = (asked + UNTIMED) // (UNTIMED + 1)
        assert broker.statistics().count(DURATION, api="Metadata") == timed
    statistics = broker.statistics()
    assert statistics.value(DURATION, api="Metadata") > 0
    assert statistics.count(DURATION, api="Hello") == 1
    assert statistics.count(DURATION, api="Fetch") == 0


async def test_bytes_are_counted_in_both_directions(broker: Broker) -> None:
    async with connect_text(broker.port) as text:
        answer = await text.ask("TOPICS")
        statistics = broker.statistics()
    assert statistics.value("millrace_received_bytes_total") == len("TOPICS\n")
    assert statistics.value("millrace_sent_bytes_total") == len("\n".join(answer)) + 1


async def test_text_commands_are_counted_like_apis(broker: Broker) -> None:
    async with connect_text(broker.port) as text:
        await text.ask("topics")
        await text.ask("DESCRIBE none")
        await text.ask("FETCH none 0 0")
        await text.ask("NONSENSE")
        await text.ask("QUIT")
    statistics = broker.statistics()
    commands = ("TOPICS", "DESCRIBE", "FETCH", "unknown", "QUIT", "TAIL")
    counts = [statistics.value(REQUESTS, dialect="text", api=command) for command in commands]
    assert counts == [1, 1, 1, 1, 1, 0]
    assert statistics.value(ERRORS, dialect="text", error="UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert statistics.value(ERRORS, api="unknown", error="INVALID_REQUEST") == 1
    assert statistics.count(DURATION, dialect="text", api="TOPICS") == 1


async def test_appends_and_their_bytes_are_counted_and_each_flush_is_timed(
    broker: Broker, wire: Wire
) -> None:
    await wire.create("t")
    before = broker.statistics()
    made = batch(b"one", b"two")
    for _ in range(5):
        assert (await wire.produce("t", made)).error_code == 0
    after = broker.statistics()

    def grown(name: str) -> int:
        return after.value(name) - before.value(name)

    assert grown("millrace_appends_total") == 5
    assert grown("millrace_appended_records_total") == 10
    assert grown("millrace_appended_bytes_total") == 5 * len(made)
    assert grown("millrace_flush_duration_seconds") > 0
    flushes = "millrace_flush_duration_seconds"
    assert after.count(flushes) - before.count(flushes) == 5
    assert after.value("millrace_log_size_bytes", topic="t") == 5 * len(made)


async def test_a_batch_that_was_repeated_is_not_appended_again(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    producer_id, epoch = await wire.producer_id()
    made = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    await wire.produce("t", made)
    before = broker.statistics().value("millrace_appends_total")
    await wire.produce("t", made)
    assert broker.statistics().value("millrace_appends_total") == before


@pytest.fixture
async def cold() -> AsyncIterator[tuple[Broker, ColdPages]]:
    """A broker whose page cache is what the test says."""
    pages = ColdPages()
    async with Broker() as running:
        running.node.server._shared.cold_reads = pages  # type: ignore[assignment]
        yield running, pages


async def test_reads_are_counted_by_where_their_bytes_were(cold: tuple[Broker, ColdPages]) -> None:
    broker, pages = cold
    async with connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"v" * 2 * SMALL_SLICE_BYTES))
        await wire.fetch("t", 0)
        pages.is_on = True
        await wire.fetch("t", 0)
        await wire.fetch("t", 0)
        pages.is_on = False
        broker.node.broker.partitions.get("t", 0)
        await wire.fetch("t", 0)
    statistics = broker.statistics("millrace_log_reads_total")
    counts = {
        source: statistics.value("millrace_log_reads_total", source=source)
        for source in ("cached", "unchecked", "cold")
    }
    assert counts == {"cached": 2, "unchecked": 0, "cold": 2}


async def test_a_fetch_that_ends_between_index_entries_has_nothing_checked_again(
    broker: Broker,
) -> None:
    async with connect(broker.port) as wire:
        await wire.create("t")
        for _ in range(100):
            await wire.produce("t", batch(b"v"))
        file = (
            broker.node.broker.partitions.get("t", 0)
            .log.reader.read(0, max_bytes=1, end_offset=100)
            .slice
        )
        assert file is not None
        tells = file.file.pread_cached(1, 0) is not None
        file.release()
        if not tells:
            pytest.skip("this file system does not tell what the page cache holds")
        for offset in range(0, 90, 30):
            await wire.ask(fetch_request([("t", 0, offset)], max_bytes=300), FetchResponse)
    statistics = broker.statistics()
    assert statistics.value("millrace_log_reads_total", source="cached") == 3
    assert statistics.value("millrace_log_reads_total") == 3


async def test_what_a_start_has_found_is_checked_at_its_first_read(broker: Broker) -> None:
    async with connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"v"))
    await broker.restart()
    async with connect(broker.port) as wire:
        await wire.fetch("t", 0)
        await wire.fetch("t", 0)
    statistics = broker.statistics()
    reads = "millrace_log_reads_total"
    assert statistics.value(reads) == 2
    assert statistics.value(reads, source="cached") == 1


async def test_connections_are_open_or_pending_or_refused() -> None:
    async with Broker(limits=Limits(connections_max=1)) as broker, connect(broker.port):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        state = "millrace_connections"
        await until(lambda: broker.statistics().value(state, state="pending") == 1)
        assert broker.statistics().value(state, state="open") == 1
        writer.write(b"TOPICS\n")
        assert b"its limit" in await reader.read()
        writer.close()
        statistics = broker.statistics()
        assert statistics.value(state, state="pending") == 0
        assert statistics.value("millrace_connections_accepted_total") == 1
        assert statistics.value("millrace_connections_refused_total") == 1


async def test_parked_fetches_are_counted_while_they_wait(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    parked = "millrace_purgatory_requests"
    sent = wire.send(fetch_request([("t", 0, 0)], max_wait_ms=300_000))
    await until(lambda: broker.statistics().value(parked, purgatory="fetch") == 1)
    async with connect(broker.port) as other:
        await other.produce("t", batch(b"v"))
    await wire.answer(FetchResponse, sent=sent)
    assert broker.statistics().value(parked) == 0


async def test_produces_are_counted_while_they_wait_for_the_disk(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.create("t")
    gate, sync = threading.Event(), FlushTicket.sync

    def wait(ticket: FlushTicket) -> None:
        assert gate.wait(60)
        sync(ticket)

    monkeypatch.setattr(FlushTicket, "sync", wait)
    waiting = "millrace_purgatory_requests"
    sent = wire.send(ProduceRequest(-1, 60_000, (ProducePartition("t", 0, batch(b"v")),)))
    await until(lambda: broker.statistics().value(waiting, purgatory="produce") == 1)
    gate.set()
    await wire.answer(ProduceResponse, sent=sent)
    assert broker.statistics().value(waiting) == 0


async def test_memory_of_an_unfinished_request_is_counted(broker: Broker) -> None:
    held = "millrace_request_memory_bytes"
    async with connect(broker.port) as wire:
        assert broker.statistics().value(held) == 0
        wire.writer.write((1 << 20).to_bytes(4, "big") + bytes(100_000))
        await until(lambda: broker.statistics().value(held) > 100_000)
    await until(lambda: broker.statistics().value(held) == 0)
    statistics = broker.statistics()
    limit = broker.config.limits.request_memory_bytes
    assert statistics.value("millrace_request_memory_limit_bytes") == limit
    assert statistics.value("millrace_request_memory_waiting") == 0


async def test_groups_are_counted_by_state(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    await wire.ask(FindCoordinatorRequest(("one", "two")), FindCoordinatorResponse)
    for group in ("one", "two"):
        commit = OffsetCommitRequest(group, -1, "", None, (CommitPartition("t", 0, 0, 0, ""),))
        await wire.ask(commit, OffsetCommitResponse)
    statistics = broker.statistics()
    assert statistics.value("millrace_groups", state="Empty") == 2
    assert statistics.value("millrace_groups") == 2


async def test_partitions_are_online_or_offline(broker: Broker, wire: Wire) -> None:
    await wire.create("t", partitions=3)
    before = broker.statistics()
    partitions = broker.node.broker.partitions
    partition = partitions.get("t", 2)
    partitions.set_offline("t", 2, NotOpenYet("t", 2))
    after = broker.statistics()
    partitions.add(partition)
    assert before.value("millrace_partitions", state="offline") == 0
    assert after.value("millrace_partitions", state="offline") == 1
    online = [each.value("millrace_partitions", state="online") for each in (before, after)]
    assert online[0] - online[1] == 1


async def test_a_broker_gives_values_of_every_metric(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    await wire.produce_all([("none", 0, batch(b"v"))])
    await wire.ask(FindCoordinatorRequest(("g",)), FindCoordinatorResponse)
    commit = OffsetCommitRequest("g", -1, "", None, (CommitPartition("t", 0, 0, 0, ""),))
    await wire.ask(commit, OffsetCommitResponse)
    # The size of the disk is measured when a client asks.
    await wire.ask(DescribeStatisticsRequest(""), DescribeStatisticsResponse)
    statistics = broker.statistics()
    assert [each.metric for each in statistics.metrics] == list(metrics.METRICS)
    assert [each.metric.name for each in statistics.metrics if not each.samples] == []


async def test_a_stopped_broker_has_no_statistics_and_a_restarted_one_begins_at_0(
    broker: Broker, wire: Wire
) -> None:
    await wire.create("t")
    await broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.statistics()
    await broker.start()
    assert broker.statistics().value(REQUESTS) == 0


def test_a_broker_in_a_thread_gives_its_statistics() -> None:
    with BrokerThread() as broker:
        assert broker.statistics().value(REQUESTS) == 0
    with pytest.raises(RuntimeError, match="not running"):
        broker.statistics()


async def test_long_requests_and_long_responses_are_counted(broker: Broker, wire: Wire) -> None:
    """Those that are handled in chunks."""
    entries = tuple(ProducePartition(f"none-{number}", 0, b"") for number in range(200))
    await wire.ask(ProduceRequest(1, 0, entries), ProduceResponse)
    await wire.ask(
        fetch_request([(f"none-{number}", 0, 0) for number in range(200)]), FetchResponse
    )
    statistics = broker.statistics()
    assert statistics.value(REQUESTS, api="Produce") == statistics.value(REQUESTS, api="Fetch") == 1
    error = "UNKNOWN_TOPIC_OR_PARTITION"
    assert statistics.value(ERRORS, api="Produce", error=error) == 200
    assert statistics.value(ERRORS, api="Fetch", error=error) == 200
    assert statistics.count(DURATION, api="Produce") == statistics.count(DURATION, api="Fetch") == 1


async def test_stats_in_text_has_a_line_for_each_value(broker: Broker, wire: Wire) -> None:
    """W-8.5"""
    await wire.create("t")
    await wire.produce("t", batch(b"v"))
    async with connect_text(broker.port) as text:
        *lines, last = await text.ask("STATS")
        statistics = broker.statistics()
        assert (await text.ask("stats millrace_appends"))[-1] == "OK 1 value"
        assert (await text.ask("STATS a b"))[0].startswith("ERR INVALID_REQUEST Type STATS")
    assert last == f"OK {len(lines)} values"
    assert len(lines) == sum(len(each.samples) for each in statistics.metrics)
    assert 'millrace_requests_total{dialect="native",api="Produce"} 1' in lines
    size = statistics.value("millrace_log_size_bytes", topic="t")
    assert f'millrace_log_size_bytes{{topic="t"}} {size}' in lines
    (flushes,) = (line for line in lines if line.startswith("millrace_flush_duration_seconds"))
    count = statistics.count("millrace_flush_duration_seconds")
    assert re.fullmatch(rf"\S+ count {count} sum 0\.\d+ p50 \S+ p99 \S+", flushes)
    assert (
        'millrace_request_duration_seconds{dialect="text",api="LAG"} count 0 sum 0 p50 - p99 -'
        in lines
    )


async def test_stats_in_text_end_where_an_answer_is_too_long(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-8.5"""
    monkeypatch.setattr("millrace_server.dialects.text.statistics.ANSWER_CHARACTERS", 100)
    async with connect_text(broker.port) as text:
        *lines, last = await text.ask("STATS millrace_requests_total")
    assert sum(map(len, lines[:-1])) < 100 <= sum(map(len, lines))
    assert re.fullmatch(rf"OK {len(lines)} of \d+ values", last)
