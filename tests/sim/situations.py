"""What a set of runs must have met, and how it is noticed.

Owns the list. A set of runs that never meets one of these proves less than it seems to. What the
broker does within itself is noticed by listening to its log lines and by counting at a few of its
methods; everything else is counted where it is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace._cluster.metadata_cache import MetadataCache
from millrace._consumer.fetch_plan import Fetch
from millrace._consumer.positions import Positions
from millrace_protocol.messages.fetch import FetchPartitionResult
from millrace_protocol.messages.metadata import MetadataResponse
from millrace_protocol.metadata_records import NO_LEADER
from millrace_protocol.records import batch_span
from millrace_server.log import (
    FencedProducer,
    OutOfOrderSequence,
    PartitionLog,
    UnknownProducer,
)
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.services.request_context import RequestContext
from millrace_simulation.broker import is_disk_error
from millrace_simulation.log_lines import LogLines, handled
from millrace_simulation.loop import running_process
from millrace_simulation.trace import Trace
from tests.sim.ledger import Ledger
from tests.sim.rot import Rot

SOMETIMES = (
    # What is done to them.
    "the broker was killed",
    "a broker was paused",
    "a client was paused",
    "a wall clock jumped",
    "a partition was led in a new epoch",
    "a broker started on a full disk",
    "a power cut met unsynced data",
    "the broker stopped in order",
    "the broker stopped after a disk error",
    "a client was killed",
    "a client was cancelled",
    "a full disk refused something",
    "a write failed",
    "a sync failed",
    "a read failed",
    "a connection was reset",
    "a message was swallowed",
    "a segment was lost and sent again",
    "writing had to pause",
    # What the broker makes of it.
    "recovery read a log",
    "recovery cut a torn tail",
    "recovery dropped a segment",
    "recovery rebuilt an index",
    "a checkpoint spared reading",
    "a log was read without a checkpoint",
    "a segment was rolled",
    "retention removed a segment",
    "disk-full was answered",
    "a partition was offline",
    "a partition could only be read after a start",
    "a partition was opened again",
    "a duplicate was recognised by its sequence",
    "a sequence was refused",
    "a producer got a new epoch",
    "a topic was deleted",
    "a topic was made again under its name",
    # What clients see.
    "a client was told of an error",
    "a send ended unknown",
    "a send failed for sure",
    "a record sent with acks=0 was lost",
    "an acked record was lost with durability=os",
    "a consumer fell out of a log that was cut",
    "a consumer was given batches of two epochs",
    "a time was looked up",
    "a time later than all was looked up",
    # Damage to what was durable.
    "a bit was flipped",
    "a sector was misdirected",
    "damage was found at a start",
    "damage was found by a reader",
)
SEEDS_FOR_ALL = 200


def missing(listed: tuple[str, ...], counts: Counter[str], seeds: int) -> list[str]:
    """What should have happened in so many runs and did not."""
    return [what for what in listed if not counts[what]] if seeds >= SEEDS_FOR_ALL else []


@contextmanager
def noticed(trace: Trace, ledger: Ledger, rot: Rot, *, one_broker: bool) -> Iterator[None]:
    """While it lasts, the brokers' log lines go to the trace and what they do is counted.

    A partition that is offline is a violation unless the disk had an error or what it holds is
    damaged. The leader epochs that clients are told of go to the ledger, until there is damage:
    no CRC covers the epoch of a batch. Of several brokers one may know of an older epoch than the
    one that a client has asked before.
    """
    append, opened, give = PartitionLog.append, PartitionLog.__dict__["open"], ProducerIds.give
    on_fetched, learn = Positions.on_fetched, MetadataCache.learn

    def counted_append(self: PartitionLog, *args: Any, **options: Any) -> Any:
        try:
            appended = append(self, *args, **options)
        except (FencedProducer, OutOfOrderSequence, UnknownProducer):
            trace.sometimes("a sequence was refused")
            raise
        if appended.duplicate:
            trace.sometimes("a duplicate was recognised by its sequence")
        return appended

    def counted_open(cls: type[PartitionLog], *args: Any, **options: Any) -> PartitionLog:
        log: PartitionLog = opened.__get__(None, cls)(*args, **options)
        report = log.recovery
        for happened, what in (
            (report.cut_bytes, "recovery cut a torn tail"),
            (report.dropped_segments, "recovery dropped a segment"),
            (report.rebuilt_indexes, "recovery rebuilt an index"),
            (not report.has_checkpoint, "a log was read without a checkpoint"),
            (report.has_checkpoint and log.end_offset, "a checkpoint spared reading"),
        ):
            if happened:
                trace.sometimes(what)
        return log

    async def counted_give(
        self: ProducerIds, context: RequestContext, producer_id: int, epoch: int
    ) -> tuple[int, int]:
        given = await give(self, context, producer_id, epoch)
        if given[0] == producer_id:
            trace.sometimes("a producer got a new epoch")
        return given

    def noted_fetched(
        self: Positions, fetch: Fetch, results: tuple[FetchPartitionResult, ...], now_ms: int
    ) -> None:
        process = ledger.number_of_process(running_process().name)
        for result in results:
            if process is not None and len(result.records) and not rot.has_begun:
                batches = _batches_of(result.records)
                if batches[0][2] != batches[-1][2]:
                    trace.sometimes("a consumer was given batches of two epochs")
                ledger.fetched(process, (result.topic, result.partition), batches)
        on_fetched(self, fetch, results, now_ms)

    def noted_learn(self: MetadataCache, response: MetadataResponse) -> None:
        process = ledger.number_of_process(running_process().name)
        for topic in response.topics:
            for partition in topic.partitions:
                is_led = partition.leader_id != NO_LEADER
                if process is not None and is_led and one_broker and not rot.has_begun:
                    where = topic.name, partition.partition
                    ledger.told_leader(process, where, partition.leader_epoch)
        learn(self, response)

    Positions.on_fetched = noted_fetched  # type: ignore[method-assign]
    MetadataCache.learn = noted_learn  # type: ignore[method-assign]
    PartitionLog.append = counted_append  # type: ignore[method-assign]
    PartitionLog.open = classmethod(counted_open)  # type: ignore[assignment,method-assign]
    ProducerIds.give = counted_give  # type: ignore[method-assign]
    try:
        with handled(_Lines(trace, rot)):
            yield
    finally:
        PartitionLog.append = append  # type: ignore[method-assign]
        PartitionLog.open = opened  # type: ignore[method-assign]
        ProducerIds.give = give  # type: ignore[method-assign]
        Positions.on_fetched = on_fetched  # type: ignore[method-assign]
        MetadataCache.learn = learn  # type: ignore[method-assign]


def _batches_of(records: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Base offset, last offset and leader epoch of each batch."""
    batches, position = [], 0
    while position < len(records):
        base_offset, size_bytes, epoch, last_offset, _ = batch_span(records, position)
        batches.append((base_offset, last_offset, epoch))
        position += size_bytes
    return batches


class _Lines(LogLines):
    def __init__(self, trace: Trace, rot: Rot) -> None:
        super().__init__(trace)
        self._is_damaged = rot.is_damaged

    def judge(self, machine: str, fields: dict[str, Any], record: logging.LogRecord) -> None:
        event, trace = fields["event"], self.trace
        if event == "partition recovered":
            trace.sometimes("recovery read a log")
        elif event == "segments removed":
            trace.sometimes("retention removed a segment", fields["segments"])
        elif event == "topic deleted":
            trace.sometimes("a topic was deleted")
        elif event.startswith("partition takes no appends"):
            if fields["is_readable"]:
                trace.sometimes("a partition could only be read after a start")
            else:
                trace.sometimes("a partition was offline")
        elif event == "partition opened again":
            trace.sometimes("a partition was opened again")
        elif event.startswith("disk full"):
            trace.sometimes("disk-full was answered")
        elif event == "partition offline":
            if is_disk_error(str(fields)):
                trace.sometimes("a partition was offline")
            elif self._is_damaged(machine, fields["topic"], fields["partition"]):
                trace.sometimes("damage was found at a start")
            else:
                trace.violation(f"{fields}")
        elif record.exc_info:
            where = str(fields.get("topic")), int(fields.get("partition", -1))
            if not is_disk_error(str(record.exc_info[1])) and not self._is_damaged(machine, *where):
                trace.violation(f"{fields}: {record.exc_info[1]!r}")
