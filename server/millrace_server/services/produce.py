"""Produce: batches in, offsets out (wire_spec.md W-4.3).

Owns the checks between a dialect and the log, and what `acks` means. A batch is checked and
appended within one synchronous call, so its bytes may be borrowed; only the wait for durability
leaves the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchHeader, check_produced_batch
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.loop.fair_scheduler import Pause, done
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory, Waiting
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.compacted_keys import check_keys, is_long, look_for_keys
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
DISK_FULL_LINE_MS = 60_000
PIECE_BATCHES = 20
"""Appended in one go, some 400 us when they are small; a request with more is done in pieces."""

log = get_logger("millrace.broker")


@dataclass(slots=True)
class Produced:
    """What became of one batch; `base_offset` is -1 when `code` is an error."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1

    @classmethod
    def refused(cls, topic: str, partition: int, refused: ApiError) -> Produced:
        """The answer for a batch that was not appended."""
        return cls(topic, partition, refused.code, refused.message)


class ProduceService:
    """The produce service."""

    def __init__(
        self,
        partitions: PartitionTable,
        env: Environment,
        waiting: Purgatory,
        producer_ids: ProducerIds,
        lookups: BatchLookups,
    ) -> None:
        self._lookups = lookups
        self._partitions = partitions
        self._producer_ids = producer_ids
        self._env = env
        self._waiting = waiting
        self._lines = LogRateLimiter(env.clock, lines=1, period_ms=DISK_FULL_LINE_MS)

    def append(
        self,
        batches: Sequence[tuple[str, int, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
    ) -> list[Produced] | asyncio.Future[list[Produced]]:
        """Appends each (topic, partition, batch); results in the same order.

        The views must be writable: offsets are written into them. Raises `ApiError` when `acks`
        is not 0, 1 or -1; nothing is appended then.
        """
        _check_acks(acks)
        results: list[Produced] = []
        pending: list[_AwaitedAck] = []
        for topic, number, batch in batches:
            self._append_one(topic, number, batch, results, pending, wait=acks != ACKS_NONE)
        return self._when_durable(results, pending, timeout_ms) if pending else results

    def append_in_pieces(
        self,
        batches: Sequence[tuple[str, int, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
    ) -> Generator[Pause, None, list[Produced] | asyncio.Future[list[Produced]]]:
        """The same for what takes long: others go first at each `yield`.

        The views must stay as they are meanwhile. Closing it leaves the batches that had no turn
        yet out.
        """
        _check_acks(acks)
        results: list[Produced] = []
        pending: list[_AwaitedAck] = []
        for index, (topic, number, batch) in enumerate(batches):
            if index and not index % PIECE_BATCHES:
                yield None
            looked_into = None
            if self.takes_long(topic, number, batch):
                try:
                    looked_into = yield from self._look_into(topic, number, batch)
                except CORE_ERRORS as error:
                    results.append(Produced.refused(topic, number, as_api_error(error)))
                    continue
            self._append_one(
                topic,
                number,
                batch,
                results,
                pending,
                wait=acks != ACKS_NONE,
                looked_into=looked_into,
            )
        return self._when_durable(results, pending, timeout_ms) if pending else results

    def takes_long(self, topic: str, number: int, batch: memoryview) -> bool:
        """Whether many records of the batch have to be read, which takes longer than all else."""
        if not is_long(batch):
            return False
        try:
            return self._partitions.get(topic, number).log.config.compacts
        except ApiError:
            return False

    def _look_into(
        self, topic: str, number: int, batch: memoryview
    ) -> Generator[Pause, None, BatchHeader]:
        _, header = self._check(topic, number, batch)
        look = look_for_keys(topic, batch, header, self._lookups)
        yield from done(self._env.spawn.task(look, name="keys"))
        return header

    def _append_one(
        self,
        topic: str,
        number: int,
        batch: memoryview,
        results: list[Produced],
        pending: list[_AwaitedAck],
        *,
        wait: bool,
        looked_into: BatchHeader | None = None,
    ) -> None:
        """Adds what becomes of a batch; `looked_into` is its header if its keys were checked."""
        try:
            partition, header = self._check(topic, number, batch)
            if partition.log.config.compacts and header != looked_into:
                check_keys(topic, batch, header)
            now_ms = self._env.clock.wall_ms()
            appended = partition.append(batch, header, now_ms=now_ms)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            if refused.code is ErrorCode.DISK_FULL:
                self._say_disk_is_full(topic, number, error)
            results.append(Produced.refused(topic, number, refused))
            return
        end_offset = appended.last_offset + 1
        if wait and not partition.is_acked(end_offset):
            pending.append(_AwaitedAck(len(results), partition, end_offset))
        results.append(
            Produced(
                topic,
                number,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=partition.log.start_offset,
            )
        )

    def _say_disk_is_full(self, topic: str, number: int, error: Exception) -> None:
        # Producers come again until there is space: without a ration each try would be a line.
        unsaid = self._lines.take()
        if unsaid is not None:
            log.error(
                "disk full, appends are refused and reads go on",
                topic=topic,
                partition=number,
                error=str(error),
                unsaid=unsaid,
            )

    def _check(self, topic: str, number: int, batch: memoryview) -> tuple[Partition, BatchHeader]:
        """Everything that a batch must be, but for the keys of a compacted topic."""
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
        if header.producer_id >= 0 and not self._producer_ids.was_given(header.producer_id):
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
        return partition, header

    def _when_durable(
        self,
        results: list[Produced],
        pending: list[_AwaitedAck],
        timeout_ms: int,
    ) -> asyncio.Future[list[Produced]]:
        left = len(pending)
        refusals: dict[int, ApiError] = {awaited.index: _TIMED_OUT for awaited in pending}

        def answer() -> None:
            answered = list(results)
            for index, refusal in refusals.items():
                result = results[index]
                answered[index] = Produced.refused(result.topic, result.partition, refusal)
            waiting.finish(answered)

        def acked(index: int, error: Exception | None) -> None:
            nonlocal left
            if error is None:
                del refusals[index]
            else:
                refusals[index] = as_api_error(error)
            left -= 1
            if not left:
                answer()

        waiting: Waiting[list[Produced]] = self._waiting.enter(timeout_ms, on_due=answer)
        for awaited in pending:
            awaited.partition.on_ack(awaited.end_offset, partial(acked, awaited.index))
        return waiting.future


@dataclass(slots=True)
class _AwaitedAck:
    """A batch that is appended and not acked: its place in the results, and what it waits for."""

    index: int
    partition: Partition
    end_offset: int


def _check_acks(acks: int) -> None:
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it is 0, 1 or -1 (all)")


_TIMED_OUT = ApiError(
    ErrorCode.REQUEST_TIMED_OUT,
    "The batch was appended but not durable in time; it may still become so",
)
