"""Corrupt ranges of partitions, repaired with the records of another replica in sync.

One task goes over the partitions that were reported, and fetches each range from one replica after
the other until one fits. A disk that could not read a range may read it by now, which is asked
first: no other replica has records that are not committed, and a leader that cannot read those
commits nothing more. What cannot be repaired now is tried again. A partition without other replicas
stays as it is, and so does the metadata log.

    request(partition)        a corrupt range was found
    close()                   the broker stops
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.replica_read import ReplicaReadRequest, ReplicaReadResponse
from millrace_protocol.records import offset_after
from millrace_server.api_error import ApiError
from millrace_server.disk.worker import shielded
from millrace_server.environment.seams import Environment
from millrace_server.log import CorruptLog, CorruptRange, UnexpectedBatch
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import Topic
from millrace_server.partitions.log_statistics import LogStatistics
from millrace_server.partitions.partition import Partition
from millrace_server.peers.calls import Channel, PeerCalls, PeerUnreachable, refusal

log = get_logger("millrace.replication")
REPAIR_RETRY_MS = 10_000
READ_TIMEOUT_MS = 5_000
T = TypeVar("T")
_FAILURES = (ApiError, CorruptLog, OSError, PeerUnreachable, UnexpectedBatch)
"""Of one replica, or of the disk; the next one may do."""


class CorruptionRepair:
    """See the module."""

    def __init__(
        self,
        env: Environment,
        cache: MetadataCache,
        peers: PeerCalls,
        statistics: LogStatistics,
        *,
        broker_id: int,
    ) -> None:
        self._env = env
        self._cache = cache
        self._peers = peers
        self._statistics = statistics
        self._broker_id = broker_id
        self._due: dict[Partition, None] = {}
        self._tried: set[CorruptRange] = set()
        """Those that could not be repaired so far."""
        self._task: asyncio.Task[None] | None = None

    def request(self, partition: Partition) -> None:
        """Has the corrupt ranges of a partition repaired, those that are found later too."""
        if partition.replica is None or partition.topic not in self._cache.image.topics:
            return
        self._due[partition] = None
        if self._task is None or self._task.done():
            self._task = self._env.spawn.task(self._run(), name="repair corrupt ranges")

    async def close(self) -> None:
        """Repairs no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            failed: list[Partition] = []
            while self._due:
                partition = next(iter(self._due))
                del self._due[partition]
                try:
                    if not await self._repair(partition):
                        failed.append(partition)
                except Exception:
                    log.exception(
                        "repair failed", topic=partition.topic, partition=partition.number
                    )
            if not failed:
                return
            await asyncio.sleep(REPAIR_RETRY_MS / 1000)
            self._due |= dict.fromkeys(failed)

    async def _repair(self, partition: Partition) -> bool:
        """Whether no range is corrupt any more."""
        repairs, is_whole = partition.log.range_repairs, True
        for found in repairs.ranges():
            # Readers do not wait twice: it may be long until another replica is in sync.
            if not repairs.begin(found, do_readers_wait=found not in self._tried):
                continue
            is_repaired = False
            try:
                is_repaired = await self._repair_range(partition, found)
            finally:
                repairs.end(found, is_repaired=is_repaired)
            is_whole &= is_repaired
            if is_repaired:
                self._tried.discard(found)
            else:
                self._tried.add(found)
        partition.watchers.call()
        return is_whole or partition.ending.is_set()

    async def _repair_range(self, partition: Partition, found: CorruptRange) -> bool:
        repairs, reason = partition.log.range_repairs, "no other replica is in sync"
        if await self._is_readable(partition, found):
            log.info("corrupt range can be read again", **_fields(partition, found))
            return True
        for broker_id, topic in self._sources(partition, found):
            try:
                batches = await self._fetched(broker_id, topic, partition.number, found)
                await _blocking(partition, partial(repairs.write, found, batches))
            except _FAILURES as error:
                reason = f"broker {broker_id}: {error}"
                continue
            self._statistics.repaired_ranges += 1
            log.info("corrupt range repaired", source=broker_id, **_fields(partition, found))
            return True
        if found not in self._tried:
            log.error("corrupt range not repaired", reason=reason, **_fields(partition, found))
        return False

    async def _is_readable(self, partition: Partition, found: CorruptRange) -> bool:
        try:
            return await _blocking(
                partition, partial(partition.log.range_repairs.is_readable, found)
            )
        except OSError:
            return False

    def _sources(self, partition: Partition, found: CorruptRange) -> Iterable[tuple[int, Topic]]:
        """The brokers that have the records for certain."""
        topic = self._cache.image.topics.get(partition.topic)
        if topic is None or found.end_offset > partition.high_watermark:
            return
        for broker_id in topic.partitions[partition.number].isr:
            if broker_id != self._broker_id:
                yield broker_id, topic

    async def _fetched(
        self, broker_id: int, topic: Topic, number: int, found: CorruptRange
    ) -> bytes:
        """The batches of another replica in a range. Raises `ApiError` and `PeerUnreachable`."""
        parts: list[bytes] = []
        offset, left = found.offset, found.end_position - found.position
        while left > 0 and offset < found.end_offset:
            response = await self._peers.call(
                broker_id,
                Channel.CONTROL,
                ReplicaReadRequest(topic.topic_id, number, offset, left),
                ReplicaReadResponse,
                timeout_ms=READ_TIMEOUT_MS,
            )
            if response.error_code != ErrorCode.NONE:
                raise refusal(response.error_code, response.error_message)
            part = bytes(response.records)
            if not part:
                break
            parts.append(part)
            left -= len(part)
            offset = offset_after(part, from_offset=offset)
        return b"".join(parts)


async def _blocking(partition: Partition, work: Callable[[], T]) -> T:
    """Has a thread work on the segments while nothing replaces them."""
    async with partition.background:
        return await shielded(partition.env.spawn.blocking(work))


def _fields(partition: Partition, found: CorruptRange) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "path": found.path,
        "position": found.position,
        "offset": found.offset,
        "end_offset": found.end_offset,
    }
