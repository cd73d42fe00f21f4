"""The rows of one task, from Arrow batches to acks.

Owns the calls of the producer: one for each topic and partition of a batch, with Arrow columns for
rows without headers, and with Python lists for rows with headers. `placement` computes the
partitions. `writer` and `stream_writer` report to Spark. Imports numpy and pyarrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.config import ProducerConfig
from millrace.errors import MessageTooLarge
from millrace.records import Headers
from millrace.sync import Producer
from millrace_spark.errors import RowRefused
from millrace_spark.options.write_options import WriteOptions
from millrace_spark.retry import client_options, start_with_retry
from millrace_spark.writing.placement import ANY, Numbers, groups, place

if TYPE_CHECKING:
    from millrace import Deliveries

_IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of keys and values without an ack; half of the producer's buffer."""


@dataclass(slots=True)
class Tally:
    """The totals of a task; all of its rows are acked.

    `spans` has `[first offset, last offset]` by topic and partition, which may enclose records of
    other writers.
    """

    rows: int = 0
    size_bytes: int = 0
    """Of keys and values, before compression."""
    spans: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def add_span(self, topic: str, partition: int, first_offset: int, last_offset: int) -> None:
        """Extends the span of a partition; ignores -1, which stands for an unknown offset."""
        if first_offset < 0:
            return
        first, last = self.spans.get((topic, partition), (first_offset, last_offset))
        self.spans[topic, partition] = (min(first, first_offset), max(last, last_offset))


def write_rows(
    batches: Iterator[pa.RecordBatch],
    columns: tuple[str, ...],
    options: WriteOptions,
    *,
    headers: Headers = (),
) -> Tally:
    """Writes all rows, in their order in each partition, and returns when they are acked.

    `columns` become the records, as `write_schema.check_frame` returns them. `headers` are appended
    to every record's own. Raises `RowRefused` for a row that cannot be a record, and the producer's
    errors; records that are already sent stay in the log.
    """
    with ExitStack() as stack:
        producer = start_with_retry(lambda: _producer(options), deadline_ms=options.deadline_ms)
        stack.push(producer)
        sender = _RowSender(producer, columns, options, headers)
        for batch in batches:
            sender.send(batch)
        return sender.finish()


def _producer(options: WriteOptions) -> Producer:
    """An idempotent producer with acks of all in-sync replicas."""
    return Producer(
        options.servers,
        **client_options(options.deadline_ms, options.credentials),
        compression=options.compression,
        delivery_timeout_ms=options.deadline_ms,
    )


@dataclass(slots=True)
class _InFlight:
    """Rows of one topic without an ack."""

    topic: str
    size_bytes: int
    calls: list[Deliveries] = field(default_factory=list)


class _RowSender:
    """Sends the rows of one task, and awaits their acks in the order of sending."""

    def __init__(
        self, producer: Producer, columns: tuple[str, ...], options: WriteOptions, headers: Headers
    ) -> None:
        self._producer = producer
        self._columns = columns
        self._topic = options.topic
        self._common_headers = tuple(headers)
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._tally = Tally()

    def send(self, batch: pa.RecordBatch) -> None:
        """Sends the rows of one batch; raises the errors of earlier batches."""
        if batch.num_rows == 0:
            return
        for topic, rows in self._by_topic(batch):
            self._send_to(topic, rows)
        while self._in_flight_bytes > _IN_FLIGHT_BYTES_MAX:
            self._await_oldest()

    def finish(self) -> Tally:
        """Returns the totals when all rows are acked."""
        while self._in_flight:
            self._await_oldest()
        return self._tally

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise RowRefused(
                "topic: a row has no topic; fill the column, filter such rows out, or name the "
                'topic of all rows with .option("topic", ...)'
            )
        coded = topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], batch
            return
        for code, rows in groups(coded.indices.to_numpy().astype(np.int64)):
            yield names[code], batch.take(pa.array(rows))

    def _send_to(self, topic: str, batch: pa.RecordBatch) -> None:
        """Sends rows of one topic, with one call for each partition."""
        values = batch.column("value").cast(pa.binary())
        keys = self._bytes("key", batch)
        named = batch.column("partition") if "partition" in self._columns else None
        headers = self._headers(batch)
        posted = _InFlight(topic, _size_bytes(values) + _size_bytes(keys))
        self._in_flight.append(posted)
        self._in_flight_bytes += posted.size_bytes
        self._tally.rows += batch.num_rows
        self._tally.size_bytes += posted.size_bytes
        if keys is not None and keys.null_count == len(keys):
            keys = None
        if named is not None and named.null_count == len(named):
            named = None
        if keys is None and named is None:
            posted.calls.append(self._post(topic, values, None, headers, ANY))
            return
        count = self._producer.partition_count(topic)
        if named is not None:
            _check_named(topic, named, count)
        for partition, rows in groups(place(keys, named, count)):
            posted.calls.append(
                self._post(
                    topic,
                    _taken(values, rows),
                    None if keys is None else _taken(keys, rows),
                    None if headers is None else [headers[row] for row in rows.tolist()],
                    partition,
                )
            )

    def _post(
        self,
        topic: str,
        values: pa.BinaryArray,
        keys: pa.BinaryArray | None,
        headers: list[Headers] | None,
        partition: int,
    ) -> Deliveries:
        """Posts rows of one partition, or of `ANY`, to the producer."""
        number = None if partition == ANY else partition
        if headers is None:
            return self._producer.post_arrow(topic, values, keys=keys, partition=number)
        return self._producer.post_many(
            topic,
            _items(values),
            keys=None if keys is None else _items(keys),
            headers=headers,
            partition=number,
        )

    def _await_oldest(self) -> None:
        """Waits for the acks of the oldest rows."""
        posted = self._in_flight.popleft()
        self._in_flight_bytes -= posted.size_bytes
        for call in posted.calls:
            try:
                receipts = self._producer.receipts(call)
            except MessageTooLarge as error:
                raise RowRefused(
                    f"value: a row is too large for a record of topic {posted.topic}: the limit is "
                    f"{ProducerConfig().record_bytes_max} bytes, or the topic's max.message.bytes "
                    "if that is less; split the row, or store it elsewhere and write its place"
                ) from error
            for batch in receipts.batches():
                first_offset = batch.base_offset
                last_offset = first_offset + batch.count - 1
                self._tally.add_span(posted.topic, batch.partition, first_offset, last_offset)

    def _bytes(self, name: str, batch: pa.RecordBatch) -> pa.BinaryArray | None:
        """A column of bytes or text, as bytes, mostly without a copy."""
        return batch.column(name).cast(pa.binary()) if name in self._columns else None

    def _headers(self, batch: pa.RecordBatch) -> list[Headers] | None:
        if "headers" not in self._columns:
            return [self._common_headers] * batch.num_rows if self._common_headers else None
        column = batch.column("headers")
        pairs = column.flatten()
        if pairs.null_count or pairs.field("key").null_count:
            raise RowRefused(
                "headers: a header of a row has no key; set it, or filter the header out"
            )
        names = pairs.field("key").to_pylist()
        values = pairs.field("value").cast(pa.binary()).to_pylist()
        counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        named = list(zip(names, values, strict=True))
        common, end = self._common_headers, 0
        headers: list[Headers] = []
        for count in counts.tolist():
            headers.append((*named[end : end + count], *common))
            end += count
        return headers


def _taken(column: pa.BinaryArray, rows: Numbers) -> pa.BinaryArray:
    """The cells of the rows, without a copy if these are all rows."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _items(column: pa.BinaryArray) -> list[bytes | None]:
    """The cells as bytes and None. Arrow converts them in C++, in 50 ns each."""
    items: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return items


def _size_bytes(column: pa.BinaryArray | None) -> int:
    return 0 if column is None else pc.sum(pc.binary_length(column)).as_py() or 0


def _check_named(topic: str, named: pa.Int32Array, count: int) -> None:
    bounds = pc.min_max(named).as_py()
    for partition in (bounds["min"], bounds["max"]):
        if partition is not None and not 0 <= partition < count:
            raise RowRefused(
                f"partition: a row names {partition}, and topic {topic} has 0 to {count - 1}; "
                "correct it, or leave it null to place the row by its key"
            )
