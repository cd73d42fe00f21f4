"""The clients without an event loop: for scripts, notebooks and worker processes.

    from millrace.sync import Consumer, Producer

    with Producer("localhost:9092") as producer:
        producer.send("clicks", b"home")            # one record, acked when it returns
        producer.send_many("clicks", pages)         # many, all acked when it returns
        for page in pages:
            producer.post("clicks", page)           # returns at once; they travel together
        producer.flush()                            # all acked

`send` waits for each ack, so a thread sends no more than some hundred records a second with it.
`post` and `send_many` send a hundred thousand: a loop posts, and flushes at its end.

The same settings, results and errors as the async clients, which do the work on a private loop in
a daemon thread. Each call but `post` crosses to that thread. May be used by any number of threads,
with or without a running loop of their own (a call blocks the caller's loop, as any blocking call
does). After a fork, make new ones.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload

from millrace import producer as _producer
from millrace._clock import monotonic_ms
from millrace._producer.receipts import Deliveries, Receipts
from millrace._sync.admin import Admin
from millrace._sync.blocking_client import RECORDS_PER_CALL, BlockingClient
from millrace._sync.consumer import Consumer
from millrace._sync.loops import loop_thread
from millrace.config import ClientOptions, ProducerConfig, ProducerOptions, Servers
from millrace.errors import ClientFailed, Closed, DeliveryFailed, MillraceError
from millrace.events import ProducerHealth
from millrace.metrics import ProducerMetrics
from millrace.partitioner import Partitioner, by_key
from millrace.records import Headers, Receipt

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar as DefaultTypeVar

    from millrace._arrow.offset_ranges import End, Start
    from millrace._sync.topic_dataset import TopicDataset

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
    GivenK = DefaultTypeVar("GivenK", default=Any)
    GivenV = DefaultTypeVar("GivenV", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["Admin", "Consumer", "Producer", "read_arrow", "topic_dataset"]

SENDS_OBSERVED = 1_000
SENDS_OBSERVED_MS = 30_000
"""So many calls of `send` within that time, and the producer logs that `post` is faster."""

_LOCKED_S = 0.005
"""The pause before the loop looks again for posted records that a thread hands over."""

log = logging.getLogger("millrace")


class Producer(BlockingClient, Generic[K, V]):
    """`millrace.Producer` for synchronous code: `send` waits for the ack, `post` does not."""

    @overload
    def __init__(
        self: Producer[bytes, bytes],
        servers: Servers = ...,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        partitioner: Partitioner = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[bytes, GivenV],
        servers: Servers = ...,
        *,
        key_serializer: None = None,
        value_serializer: Callable[[GivenV], bytes],
        partitioner: Partitioner = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[GivenK, bytes],
        servers: Servers = ...,
        *,
        key_serializer: Callable[[GivenK], bytes],
        value_serializer: None = None,
        partitioner: Partitioner = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[GivenK, GivenV],
        servers: Servers = ...,
        *,
        key_serializer: Callable[[GivenK], bytes],
        value_serializer: Callable[[GivenV], bytes],
        partitioner: Partitioner = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
        partitioner: Partitioner = by_key,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        self._producer: _producer.Producer[K, V] = cast(
            "Any",
            _producer.Producer(
                servers,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                **options,
            ),
        )
        super().__init__(self._producer)
        self._posted: list[tuple[tuple[str, V | None], dict[str, Any]]] = []
        self._lock = threading.Lock()
        """Held by what takes records from `_posted`, until the producer has them."""
        self._thread = loop_thread()
        self._linger_s = options.get("linger_ms", ProducerConfig.linger_ms) / 1000
        self._giving: asyncio.Task[None] | None = None
        self._refusal: Exception | None = None
        self._sends = 0
        self._observed_since_ms = 0
        self._is_told = False

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Sends one record; returns when it is acked. Raises what became of it otherwise.

        In a loop, `post` sends more in a second than this does in a minute.
        """
        self._note_send()

        async def send() -> Receipt:
            await self._producer.room()
            return await self._producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )

        return self._run(send())

    def post(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Takes a record and returns; it is sent within `linger_ms`, with others that came since.

        May be called by any number of threads; the records of each keep their order. Blocks while
        the buffer is full. A failure is raised by the next `flush` or `close`, or, for a record
        that cannot be sent at all, by a later call that hands records over.
        """
        columns = {
            "key": key,
            "partition": partition,
            "headers": headers,
            "timestamp_ms": timestamp_ms,
        }
        with self._lock:
            if not self._posted:
                self._thread.later(self._linger_s, self._begin_hand_over)
            self._posted.append(((topic, value), columns))
            if len(self._posted) < RECORDS_PER_CALL:
                return
        self._hand_over()

    def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        *,
        keys: Sequence[K | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> Receipts:
        """Sends many records of one topic; returns when all are acked."""

        async def send_many() -> Receipts:
            await self._producer.room()
            return await self._producer.send_many(
                topic,
                values,
                keys=keys,
                headers=headers,
                timestamps_ms=timestamps_ms,
                partition=partition,
            )

        return self._run(send_many())

    def post_many(
        self,
        topic: str,
        values: Sequence[V | None],
        *,
        keys: Sequence[K | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Takes many records of one topic, to be sent while the caller makes the next ones.

        Blocks while the buffer is full. `receipts` waits for what it returns. Without it,
        failures are raised by `flush` or `close`. Not ordered with what `post` took.
        """

        async def post_many() -> Deliveries:
            await self._producer.room()
            return self._producer.send_many(
                topic,
                values,
                keys=keys,
                headers=headers,
                timestamps_ms=timestamps_ms,
                partition=partition,
            )

        return self._run(post_many())

    def post_arrow(
        self,
        topic: str,
        values: pa.Array,
        *,
        keys: pa.Array | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """`post_many` of Arrow columns, without an object per record; needs `millrace[arrow]`.

        `millrace.Producer.send_arrow` says what is taken and what is raised.
        """

        async def post_arrow() -> Deliveries:
            await self._producer.room()
            # What is wrong with the topic is told by the records' delivery, after its own retries.
            with suppress(MillraceError):
                await self._producer.partition_count(topic)
            return self._producer.send_arrow(topic, values, keys=keys, partition=partition)

        return self._run(post_arrow())

    def receipts(self, posted: Deliveries) -> Receipts:
        """The receipts of one `post_many` or `post_arrow`; returns when all its records are acked.

        Raises what became of the first batch that was not.
        """

        async def settle() -> Receipts:
            return await posted

        return self._run(settle())

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; asks a broker where nothing is known of it yet."""
        return self._run(self._producer.partition_count(topic))

    def flush(self) -> None:
        """Returns when all that was sent or posted is acked. Raises `DeliveryFailed`."""
        self._hand_over()
        self._run(self._producer.flush())

    def close(self) -> None:
        """Flushes, then disconnects. Raises `DeliveryFailed`."""
        try:
            self._hand_over()
        finally:
            super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DeliveryFailed as failed:
            if error is None:
                raise
            error.add_note(f"and the producer: {failed}")

    def health(self) -> ProducerHealth:
        """The state of the producer at this moment."""
        return self._call(self._producer.health)

    def metrics(self) -> ProducerMetrics:
        """The counters since the start, and the gauges now; also when it is closed."""
        return self._producer.metrics()

    def _hand_over(self) -> None:
        """Gives the producer what was posted. Raises what it refuses."""
        # Under the lock, so that records keep the order they were posted in.
        with self._lock:
            error, self._refusal = self._refusal, None
            if error is not None:
                raise error
            if self._posted:
                self._run(self._give())

    def _begin_hand_over(self) -> None:
        """The same on the loop, which waits for no lock."""
        loop = asyncio.get_running_loop()
        if not self._lock.acquire(blocking=False):
            loop.call_later(_LOCKED_S, self._begin_hand_over)
        else:
            self._giving = loop.create_task(self._give_and_release())

    async def _give_and_release(self) -> None:
        try:
            await self._give()
        except Exception as error:
            self._refusal = error
            asyncio.get_running_loop().call_soon(self._begin_hand_over)
        finally:
            self._lock.release()

    async def _give(self) -> None:
        """Gives the producer all that was posted, up to the first record that it refuses."""
        posted, self._posted = self._posted, []
        for index, (record, columns) in enumerate(posted):
            try:
                await self._producer.room()
                self._producer.send(*record, **columns)
            except (Closed, ClientFailed):
                raise
            except Exception:
                self._posted = posted[index + 1 :]
                raise

    def _left_behind(self) -> str:
        return self._producer.left_behind(len(self._posted))

    def _note_send(self) -> None:
        """Tells once of the faster way where records are sent one by one and fast."""
        self._sends += 1
        if self._sends % SENDS_OBSERVED == 1:
            self._observed_since_ms = monotonic_ms()
        elif self._sends % SENDS_OBSERVED == 0 and not self._is_told:
            took_ms = monotonic_ms() - self._observed_since_ms
            self._is_told = took_ms < SENDS_OBSERVED_MS
            if self._is_told:
                log.warning(
                    "%d records were sent one by one in %d ms, each with a wait for its ack: "
                    "post() and flush(), or send_many(), send many times as many",
                    SENDS_OBSERVED,
                    took_ms,
                )


def read_arrow(
    topic: str,
    servers: Servers = "localhost:9092",
    *,
    start: Start = "earliest",
    end: End = "latest",
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    fields: pa.Schema | None = None,
    **options: Unpack[ClientOptions],
) -> pa.RecordBatchReader:
    """The records of a topic between two bounds, as Arrow record batches read one after the other.

    `millrace.read_arrow` has the meaning of the arguments. The bounds are fixed by this call, which
    raises what its `start` does. Records are read when batches are asked for.
    """
    from millrace._arrow.table_columns import TableColumns
    from millrace._range_reader import Bounds
    from millrace._sync.arrow import open_reader

    bounds = Bounds(topic, start, end, partitions)
    return open_reader(bounds, TableColumns(fields, columns), servers, options)


def topic_dataset(
    topic: str,
    servers: Servers = "localhost:9092",
    *,
    start: Start = "earliest",
    end: End = "latest",
    partitions: Collection[int] | None = None,
    fields: pa.Schema | None = None,
    **options: Unpack[ClientOptions],
) -> TopicDataset:
    """The records of a topic between two bounds as a `pyarrow.dataset.Dataset`.

    DuckDB and Polars (`scan_pyarrow_dataset`) tell it the columns and the predicate of each query,
    and it reads only these columns, and only offsets that the predicate on partition, offset and
    timestamp may be true for. The arguments are those of `read_arrow`.
    """
    from millrace._range_reader import Bounds
    from millrace._sync.topic_dataset import TopicDataset

    return TopicDataset(Bounds(topic, start, end, partitions), fields, servers, options)
