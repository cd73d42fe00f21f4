"""Produce: batches in, offsets out (wire_spec.md W-4.3).

Owns the checks between a dialect and the log, and what `acks` means. A batch is checked and
appended without an `await` in between, so its bytes may be borrowed for that long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchHeader, check_produced_batch
from millrace_protocol.records.header import CODEC_MASK
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.limits import DECODED_BYTES_MAX
from millrace_server.log import UnknownProducer
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.loop.completion import Completion
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory
from millrace_server.services.append_turns import AppendTurns
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.compacted_keys import check_keys, is_long, look_for_keys
from millrace_server.services.max_timestamps import compute_max_timestamp
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.services.request_context import RequestContext
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
DISK_FULL_LINE_MS = 60_000
CHUNK_BATCHES = 20
"""Appended in one chunk, some 400 us when they are small."""

ToAppend = tuple[str, int, memoryview]
"""Topic, partition and batch."""

log = get_logger("millrace.broker")


@dataclass(slots=True)
class Produced:
    """The result for one batch; `base_offset` is -1 when `code` is an error."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1

    @classmethod
    def refused(
        cls, topic: str, partition: int, error: ApiError, *, log_start_offset: int = -1
    ) -> Produced:
        """The result for a batch that was not appended, or not acked."""
        return cls(topic, partition, error.code, error.message, log_start_offset=log_start_offset)


class ProduceService:
    """Appends batches and waits for their acks."""

    def __init__(
        self,
        partitions: PartitionTable,
        env: Environment,
        scheduler: FairScheduler,
        purgatory: Purgatory,
        producer_ids: ProducerIds,
        lookups: BatchLookups,
        throttle: ClientThrottle,
    ) -> None:
        self._partitions = partitions
        self._env = env
        self._scheduler = scheduler
        self._purgatory = purgatory
        self._producer_ids = producer_ids
        self._lookups = lookups
        self._throttle = throttle
        self._turns = AppendTurns()
        self._disk_full_lines = LogRateLimiter(env.clock, lines=1, period_ms=DISK_FULL_LINE_MS)

    async def append(
        self, context: RequestContext, batches: Sequence[ToAppend], *, acks: int, timeout_ms: int
    ) -> list[Produced]:
        """Appends each (topic, partition, batch); results in the same order, when acked.

        The views must be writable: offsets are written into them. Their bytes are valid until the
        first `await`; of more than `CHUNK_BATCHES` batches, until the end. Raises `ApiError` when
        `acks` is not 0, 1 or -1; nothing is appended then. When it is closed at an `await`, the
        batches that were not reached are not appended.
        """
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            sentence = f"acks is {acks}; it is 0, 1 or -1 (all)"
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, sentence)
        if self._throttle.cache.image.quotas.entities:
            self._throttle.count_produced(context, sum(len(batch) for _, _, batch in batches))
        results, wait = await self._append_all(context, batches, acks)
        if wait is not None:
            await self._acked(wait, timeout_ms)
        return results

    async def _append_all(
        self, context: RequestContext, batches: Sequence[ToAppend], acks: int
    ) -> tuple[list[Produced], _AckWait | None]:
        """The results, and the wait for acks that some of them need."""
        is_by_all = acks == ACKS_ALL
        results: list[Produced] = []
        wait: _AckWait | None = None
        is_borrowed, has_turn = len(batches) <= CHUNK_BATCHES, False
        try:
            if self._turns.taken and id(context) in self._turns.taken:
                if is_borrowed:
                    is_borrowed, batches = False, _copies(batches)
                await self._turns.take(context)
                has_turn = True
            for index in range(len(batches)):
                if index and not index % CHUNK_BATCHES:
                    await self._scheduler.yield_()
                topic, number, batch = batches[index]
                partition = None
                try:
                    partition, header = self._check(context, topic, number, batch)
                    config, producer_id = partition.log.config, header.producer_id
                    if (
                        (producer_id >= 0 and not self._producer_ids.was_given(producer_id))
                        or config.codec not in (None, header.attributes & CODEC_MASK)
                        or (config.compacts and is_long(batch))
                        or header.max_timestamp < header.base_timestamp
                    ):
                        if is_borrowed:
                            is_borrowed, batches = False, _copies(batches)
                            batch = batches[index][2]
                        if not has_turn:
                            await self._turns.take(context)
                            has_turn = True
                        batch = await self._look_into(partition, batch, header)
                        partition, header = self._check(context, topic, number, batch)
                    elif config.compacts:
                        check_keys(topic, batch, header)
                    if producer_id >= 0:
                        self._check_producer(context, partition, header)
                    if is_by_all and partition.replica is not None:
                        partition.replica.check_append()
                    appended = partition.append(batch, header, now_ms=self._env.clock.wall_ms())
                except CORE_ERRORS as error:
                    results.append(self._refused(topic, number, error, partition))
                    continue
                end_offset = appended.last_offset + 1
                if acks != ACKS_NONE and not partition.is_acked(end_offset, is_by_all=is_by_all):
                    wait = wait or _AckWait(results, is_by_all=is_by_all)
                    wait.add(index, partition, end_offset)
                start_offset = partition.log.start_offset
                stored = appended.base_offset, appended.log_append_time_ms, start_offset
                results.append(Produced(topic, number, ErrorCode.NONE, None, *stored))
        finally:
            if has_turn:
                self._turns.give_back(context)
        return results, wait

    async def _acked(self, wait: _AckWait, timeout_ms: int) -> None:
        """Returns when every batch is acked or refused, or the time is over."""
        if not wait.begin():
            return
        self._purgatory.add(wait, timeout_ms)
        try:
            await wait.completion
        finally:
            self._purgatory.remove(wait)

    def _refused(
        self, topic: str, number: int, error: Exception, partition: Partition | None
    ) -> Produced:
        refused = _or_next_leader(self._refusal(topic, number, error), partition)
        start = -1
        if partition is not None and isinstance(error, UnknownProducer):
            # A producer learns from it that its earlier batches may be deleted by now. It goes on
            # with its next epoch then (KIP-360).
            start = partition.start_offset
        return Produced.refused(topic, number, refused, log_start_offset=start)

    def _refusal(self, topic: str, number: int, error: Exception) -> ApiError:
        refused = as_api_error(error)
        if refused.code is ErrorCode.DISK_FULL:
            # Producers retry until there is space: each retry would be a line.
            suppressed = self._disk_full_lines.take()
            if suppressed is not None:
                log.error(
                    "disk full, the broker refuses appends and serves reads",
                    topic=topic,
                    partition=number,
                    error=str(error),
                    suppressed=suppressed,
                )
        return refused

    async def _look_into(
        self, partition: Partition, batch: memoryview, header: BatchHeader
    ) -> memoryview:
        """The batch with the codec of its topic and its largest timestamp.

        Its producer and its keys are checked then.
        """
        if header.producer_id >= 0 and not self._producer_ids.was_given(header.producer_id):
            until_given = self._producer_ids.until_given(header.producer_id)
            await self._env.spawn.task(until_given, name="producer id")
        if partition.config.compacts:
            await look_for_keys(partition.topic, batch, header, self._lookups)
        if header.max_timestamp < header.base_timestamp:
            header = await compute_max_timestamp(batch, header, self._lookups)
        codec = partition.config.codec
        if codec is None or codec is header.codec:
            return batch
        async with self._lookups:
            return memoryview(
                await self._lookups.recompressed(
                    batch, header, codec, limit_bytes=DECODED_BYTES_MAX
                )
            )

    def _check(
        self, context: RequestContext, topic: str, number: int, batch: memoryview
    ) -> tuple[Partition, BatchHeader]:
        """All that a batch must be, and its client, but for its producer and its keys."""
        if context.authorizer is not None:
            context.check_topic(Operation.WRITE, topic)
        partition = self._partitions.get(topic, number)
        if topic.startswith(INTERNAL_TOPIC_PREFIX):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {topic!r} belongs to the broker; clients cannot write to it",
            )
        config = partition.log.config
        if len(batch) > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch has {len(batch)} bytes and max.message.bytes of {topic!r} is "
                f"{config.max_message_bytes}; send less or raise it",
            )
        header = check_produced_batch(batch, max_bytes=config.max_message_bytes)
        return partition, header

    def _check_producer(
        self, context: RequestContext, partition: Partition, header: BatchHeader
    ) -> None:
        if not self._producer_ids.was_given(header.producer_id):
            # A batch with a future id would fence the producer that gets it.
            raise ApiError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"This cluster has not given producer id {header.producer_id}; ask InitProducerId",
            )
        given_epoch = self._producer_ids.epoch_of(header.producer_id)
        if header.producer_epoch < given_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"InitProducerId has replaced epoch {header.producer_epoch} of producer "
                f"{header.producer_id}; only the newest identity writes",
            )
        if not context.may_begin_anywhere:
            partition.log.producers.check_begin(header)


def _or_next_leader(refused: ApiError, partition: Partition | None) -> ApiError:
    """What a producer is told: where the disk of this broker fails, another replica takes over."""
    is_disk = refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    if not is_disk or partition is None or partition.replica is None:
        return refused
    return ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{refused.message}. Another replica takes over; refresh the metadata and retry",
    )


def _copies(batches: Sequence[ToAppend]) -> list[ToAppend]:
    return [(topic, number, memoryview(bytearray(batch))) for topic, number, batch in batches]


class _AckWait:
    """The batches of one request that are appended and not acked; parked in the purgatory."""

    __slots__ = ("_is_by_all", "_results", "_unacked", "_waits_for", "completion")

    def __init__(self, results: list[Produced], *, is_by_all: bool) -> None:
        self._results = results
        self._is_by_all = is_by_all
        self._waits_for: list[tuple[int, Partition, int]] = []
        self._unacked: set[int] = set()
        self.completion: Completion[None]

    def add(self, index: int, partition: Partition, end_offset: int) -> None:
        """Batch `index` of the request is acked at `end_offset` of the partition."""
        self._waits_for.append((index, partition, end_offset))

    def begin(self) -> bool:
        """Registers with the partitions; False when every batch has its ack by now."""
        self.completion = Completion()
        self._unacked.update(index for index, _, _ in self._waits_for)
        for index, partition, end_offset in self._waits_for:
            on_ack = partial(self._on_ack, index, partition)
            partition.on_ack(end_offset, on_ack, is_by_all=self._is_by_all)
        return bool(self._unacked)

    def expire(self) -> None:
        """See `Parked`."""
        for index in self._unacked:
            self._refuse(
                index,
                ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "The batch was appended but not durable in time; it may still become so",
                ),
            )
        self._unacked.clear()
        self.completion.complete(None)

    def _on_ack(self, index: int, partition: Partition, error: Exception | None) -> None:
        if index not in self._unacked:
            return
        self._unacked.discard(index)
        if error is not None:
            self._refuse(index, _or_next_leader(as_api_error(error), partition))
        if not self._unacked:
            self.completion.complete(None)

    def _refuse(self, index: int, error: ApiError) -> None:
        result = self._results[index]
        self._results[index] = Produced.refused(result.topic, result.partition, error)
