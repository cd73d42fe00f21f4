"""The metadata log: appends records, and tells when they are committed.

With one broker the log is a local partition, and durable is committed. A quorum keeps the same
functions: `append`, `committed`, `read`, `delete_before`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace_protocol.metadata_records import MetadataRecord, encode_metadata_record
from millrace_protocol.records import CorruptBatch, encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock
from millrace_server.log import LogFailed
from millrace_server.metadata.records import UnreadableMetadata, decode_record
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replay import READ_BYTES, records_in

METADATA_TOPIC = "__cluster_metadata"


class NotWritten(ApiError):
    """The metadata log did not take the records; the cluster is as it was."""


class MetadataLog:
    """The log of metadata records."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self.appended_bytes = 0
        """Bytes appended since the start of the broker."""

    @property
    def directory(self) -> str:
        """Where its files are, and the snapshots beside them."""
        return self._partition.log.directory

    @property
    def committed_offset(self) -> int:
        """The end of what is committed; exclusive."""
        return self._partition.high_watermark

    def check_usable(self) -> None:
        """Raises `ApiError` after a disk error: the last records may be on the disk or not."""
        log = self._partition.log
        if log.failure is not None:
            raise as_api_error(LogFailed(log.directory, log.failure))

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends records as one batch, all or none; returns the log's end offset behind them.

        Raises `NotWritten`.
        """
        now_ms = self._clock.wall_ms()
        batch = encode_batch([encode_metadata_record(r) for r in records], timestamps_ms=now_ms)
        self.appended_bytes += len(batch)
        try:
            appended = self._partition.append(memoryview(batch), read_header(batch), now_ms=now_ms)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            raise NotWritten(refused.code, refused.message) from error
        return appended.last_offset + 1

    async def committed(self, end_offset: int) -> None:
        """Returns when every record before `end_offset` is committed.

        Raises `ApiError` when it is not known whether they are: the next start finds out, and the
        broker is about to stop.
        """
        try:
            await self._partition.acked(end_offset)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error

    def delete_before(self, offset: int) -> None:
        """Deletes the records before `offset`, which a snapshot holds. Raises `ApiError`."""
        try:
            self._partition.advance_start(offset)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error

    def read(self, offset: int) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """The committed records from `offset` on, in runs, each with the offset behind it.

        Blocking. Raises `UnreadableMetadata`, `CorruptLog` and `OSError`.
        """
        start = self._partition.start_offset
        if not start <= offset <= self.committed_offset:
            raise UnreadableMetadata(
                f"the metadata log holds offsets {start} to {self.committed_offset} and is needed "
                f"from {offset} on: restore the whole directory {self.directory} from one copy"
            )
        while offset < self.committed_offset:
            found = self._partition.read(offset, max_bytes=READ_BYTES)
            if found.slice is None:
                return
            try:
                records = [decode_record(r[3]) for r in records_in(found.slice, offset)]
            except CorruptBatch as error:
                raise UnreadableMetadata(f"the metadata log is damaged: {error}") from error
            offset = found.next_offset
            yield offset, records
