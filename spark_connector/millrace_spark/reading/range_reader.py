"""Reading of one range on an executor, as whole fetches.

Owns the wait for records, and the policy for planned records that are lost. Decodes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

from millrace.errors import BrokerError, OffsetOutOfRange, UnknownTopicOrPartition
from millrace.records import RecordBatch
from millrace.sync import Admin, Consumer
from millrace_spark.errors import DataLost, ReadTimedOut
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.retry import client_options, start_admin, start_with_retry

FETCH_BYTES = 24 * 1024 * 1024
"""Size of one fetch. A task holds two: the one it decodes and the next one. The client reuses their
buffers. Reading rows of 1 KiB takes up to a tenth more CPU time with 16 MiB, and a seventh with
8 MiB."""

log = logging.getLogger("millrace_spark")


def read_range(wanted: OffsetRange, options: ReadOptions) -> Iterator[RecordBatch[bytes, bytes]]:
    """Fetches that together cover the range; the last may extend beyond its end.

    The caller must `del` a fetch before it takes the next one, so that the client can reuse its
    buffer.

    Raises `DataLost` for lost records unless the options skip them, `ReadTimedOut`, and the errors
    of the clients that are not retriable.
    """
    with closing(_start_admin(options)) as admin:
        lost = _incarnation_lost(admin, wanted)
        if lost is not None:
            _report(lost, options)
            return
        with closing(_start_consumer(options)) as consumer:
            consumer.assign([wanted.where])
            consumer.seek(wanted.where, wanted.start_offset)
            position = wanted.start_offset
            while position < wanted.end_offset:
                try:
                    for fetch in _fetches(consumer, wanted, options):
                        yield fetch
                        position = fetch.next_offset
                        del fetch
                        if position >= wanted.end_offset:
                            return
                except (OffsetOutOfRange, UnknownTopicOrPartition) as error:
                    position = _position_after_loss(admin, wanted, position, options, error)
                    consumer.seek(wanted.where, position)


def _start_admin(options: ReadOptions) -> Admin:
    return start_admin(options.servers, options.credentials, deadline_ms=options.deadline_ms)


def _start_consumer(options: ReadOptions) -> Consumer[bytes, bytes]:
    def make() -> Consumer[bytes, bytes]:
        settings = client_options(options.deadline_ms, options.credentials)
        return Consumer(
            options.servers,
            **settings,
            # A task has its own thread, which does nothing but read.
            background=False,
            # Less than the request timeout. The records exist, so the broker answers at once.
            fetch_max_wait_ms=min(500, max(1, settings["request_timeout_ms"] // 2)),
            max_partition_bytes=FETCH_BYTES,
            fetch_max_bytes=FETCH_BYTES,
            buffer_bytes=FETCH_BYTES,
        )

    return start_with_retry(make, deadline_ms=options.deadline_ms)


def _fetches(
    consumer: Consumer[bytes, bytes], wanted: OffsetRange, options: ReadOptions
) -> Iterator[RecordBatch[bytes, bytes]]:
    yield from consumer.batches(timeout_ms=options.deadline_ms)
    raise ReadTimedOut(
        f"{wanted}: no records within deadlineMs={options.deadline_ms}; "
        f"last error: {consumer.health().last_error or 'none'}"
    )


def _incarnation_lost(admin: Admin, wanted: OffsetRange) -> str | None:
    """Describes the loss if the planned topic was deleted; else None."""
    (outcome,) = admin.describe_topics([wanted.topic])
    if isinstance(outcome.error, UnknownTopicOrPartition):
        return f"{wanted}: the topic was deleted after the read was planned"
    if str(outcome.unwrap().topic_id) != wanted.topic_id:
        return f"{wanted}: the topic was deleted and created again after the read was planned"
    return None


def _position_after_loss(
    admin: Admin,
    wanted: OffsetRange,
    position: int,
    options: ReadOptions,
    error: BrokerError,
) -> int:
    """The offset behind lost records. Raises `DataLost` unless the options skip them."""
    lost = _incarnation_lost(admin, wanted)
    if lost is not None:
        _report(lost, options)
        return wanted.end_offset
    earliest = admin.list_offsets({wanted.where: "earliest"})[wanted.where].offset
    if position < earliest:
        gone_end = min(earliest, wanted.end_offset)
        _report(
            f"{wanted.where}: records [{position}, {gone_end}) are gone: retention removed them "
            "after the read was planned",
            options,
        )
        return gone_end
    latest = admin.list_offsets({wanted.where: "latest"})[wanted.where].offset
    if position > latest:
        _report(
            f"{wanted.where}: records [{position}, {wanted.end_offset}) are gone: the log was "
            f"truncated to {latest} after the read was planned",
            options,
        )
        return wanted.end_offset
    raise error


def _report(lost: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLost(f"{lost}. Run the read again, or set failOnDataLoss to false")
    log.warning("%s; skipped, because failOnDataLoss is false", lost)
