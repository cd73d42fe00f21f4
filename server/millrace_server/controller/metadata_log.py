"""The metadata log: changes of the cluster's knowledge, durable before they are true.

The shell around `metadata.controller` and `metadata.image`. One change at a time: it is decided
on the image, appended, made durable, replayed into the image, and only then answered. With one
broker the log is a local partition; the records and the replay stay when a quorum keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import CorruptBatch, encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.log import LogFailed
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import (
    MetadataRecord,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replay import READ_BYTES, records_in

T = TypeVar("T")
METADATA_TOPIC = "__cluster_metadata"


class NotWritten(ApiError):
    """The metadata log did not take the records; the cluster is as it was."""


class MetadataLog:
    """The log of metadata records and the image it makes."""

    def __init__(self, partition: Partition, image: ClusterImage, env: Environment) -> None:
        self._partition = partition
        self._image = image
        self._env = env
        # Held across the wait for the disk on purpose: the next change must be decided on an
        # image that has this one.
        self._one_change = asyncio.Lock()
        self._is_closed = False

    def load(self) -> None:
        """Replays the log from its start. Raises `UnreadableMetadata`, `CorruptLog`, `OSError`."""
        try:
            self._replay_all()
        except CorruptBatch as error:
            raise UnreadableMetadata(f"the metadata log is damaged: {error}") from error

    def _replay_all(self) -> None:
        offset = self._partition.log.start_offset
        while offset < self._partition.high_watermark:
            found = self._partition.read(offset, max_bytes=READ_BYTES)
            if found.slice is None:
                break
            for _, _, _, value, _ in records_in(found.slice, offset):
                self._image.replay(decode_record(value or b""))
            offset = found.next_offset

    async def change(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs one whole change, `work`, which decides, prepares and calls `write`.

        It runs to its end even when the caller is cancelled: a client that hangs up must not
        leave a record that is durable and not replayed.
        """

        async def run() -> T:
            async with self._one_change:
                if self._is_closed:
                    raise ApiError(ErrorCode.BROKER_STOPPING)
                log = self._partition.log
                if log.failure is not None:
                    # What the last change wrote may be on the disk, and the directories it tells
                    # of have to stay: no other change may prepare any.
                    raise as_api_error(LogFailed(log.directory, log.failure))
                return await work()

        return await asyncio.shield(self._env.spawn.task(run(), name="metadata change"))

    async def close(self) -> None:
        """Refuses every further change; returns when the one in progress, if any, is done."""
        self._is_closed = True
        async with self._one_change:
            pass

    async def write(self, records: Sequence[MetadataRecord]) -> None:
        """Appends records, waits until they are durable, and replays them.

        Raises `NotWritten` when nothing was appended, and `ApiError` when it is not known whether
        the records are durable: the next start will tell, and the broker is about to stop.
        """
        if not records:
            return
        now_ms = self._env.clock.wall_ms()
        batch = encode_batch([encode_record(r) for r in records], timestamps_ms=now_ms)
        try:
            appended = self._partition.append(memoryview(batch), read_header(batch), now_ms=now_ms)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            raise NotWritten(refused.code, refused.message) from error
        try:
            await self._partition.acked(appended.last_offset + 1)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error
        for record in records:
            self._image.replay(record)
