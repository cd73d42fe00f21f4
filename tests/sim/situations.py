"""What a set of runs must have met, and how it is noticed.

Owns the list. A set of runs that never meets one of these proves less than it seems to. What the
broker does within itself is noticed by listening to its log lines and by counting at a few of its
methods; everything else is counted where it is done.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millrace_server.log import (
    FencedProducer,
    OutOfOrderSequence,
    PartitionLog,
    UnknownProducer,
)
from millrace_server.services.producer_ids import ProducerIds
from tests.sim.host import Trace
from tests.sim.loop import CURRENT

SOMETIMES = (
    # What is done to them.
    "the broker was killed",
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
    "a partition was offline after a disk error",
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
    "a time was looked up",
    "a time later than all was looked up",
    # Damage to what was durable.
    "a bit was flipped",
    "a sector was misdirected",
    "damage was found at a start",
    "damage was found by a reader",
)
SEEDS_FOR_ALL = 200


def missing(counts: Counter[str], seeds: int) -> list[str]:
    """What should have happened in so many runs and did not."""
    return [what for what in SOMETIMES if not counts[what]] if seeds >= SEEDS_FOR_ALL else []


def is_disk_error(text: str) -> bool:
    """Whether a sentence is about an error that the simulated disk made."""
    return any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EIO))


@contextmanager
def noticed(trace: Trace, *, is_damaged: Callable[[str, int], bool]) -> Iterator[None]:
    """While it lasts, the broker's log lines go to the trace and what it does is counted.

    A partition that is offline is a violation unless the disk had an error or `is_damaged` says
    of its topic and number that this may be.
    """
    logger = logging.getLogger("millrace")
    lines = _Lines(trace, is_damaged)
    level, propagate = logger.level, logger.propagate
    append, opened, give = PartitionLog.append, PartitionLog.__dict__["open"], ProducerIds.give

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

    async def counted_give(self: ProducerIds, producer_id: int, epoch: int) -> tuple[int, int]:
        given = await give(self, producer_id, epoch)
        if given[0] == producer_id:
            trace.sometimes("a producer got a new epoch")
        return given

    PartitionLog.append = counted_append  # type: ignore[method-assign]
    PartitionLog.open = classmethod(counted_open)  # type: ignore[assignment,method-assign]
    ProducerIds.give = counted_give  # type: ignore[method-assign]
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        PartitionLog.append = append  # type: ignore[method-assign]
        PartitionLog.open = opened  # type: ignore[method-assign]
        ProducerIds.give = give  # type: ignore[method-assign]
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = propagate


class _Lines(logging.Handler):
    def __init__(self, trace: Trace, is_damaged: Callable[[str, int], bool]) -> None:
        super().__init__()
        self._trace = trace
        self._is_damaged = is_damaged

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        fields: dict[str, Any] = (
            record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        )
        event, trace = fields["event"], self._trace
        trace.note(f"{process.name if process else '-'} logs {fields}")
        if event == "partition recovered":
            trace.sometimes("recovery read a log")
        elif event == "segments removed":
            trace.sometimes("retention removed a segment", fields["segments"])
        elif event == "topic deleted":
            trace.sometimes("a topic was deleted")
        elif event.startswith("disk full"):
            trace.sometimes("disk-full was answered")
        elif event == "partition offline":
            if is_disk_error(str(fields)):
                trace.sometimes("a partition was offline after a disk error")
            elif self._is_damaged(fields["topic"], fields["partition"]):
                trace.sometimes("damage was found at a start")
            else:
                trace.violation(f"{fields}")
        elif record.exc_info:
            where = str(fields.get("topic")), int(fields.get("partition", -1))
            if not is_disk_error(str(record.exc_info[1])) and not self._is_damaged(*where):
                trace.violation(f"{fields}: {record.exc_info[1]!r}")
