"""Recovery as a target: a partition's file that holds anything at all, on a disk in memory.

What is found is refused as corrupt, or it opens: then all of it can be read, the log takes another
batch, and is found again as it was left.
"""

from __future__ import annotations

from millrace_protocol.records import check_batch, encode_batch, read_header
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_simulation.disk import FaultyDisk
from tests.fuzz.samples import batches, resealed
from tests.fuzz.targets import Target

_DIRECTORY = "found-0"
_CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=128)
_BATCH = bytes(encode_batch([b"next"], timestamps_ms=2_000))


def recover_log(data: bytes) -> None:
    """Opens, reads, appends to and opens again what a log file of these bytes gives."""
    for candidate in (data, resealed(data)):
        disk = FaultyDisk()
        disk.make_directory(_DIRECTORY)
        file = disk.open(f"{_DIRECTORY}/{0:020}.log", create=True, write=True)
        file.pwrite(candidate, 0)
        file.release()
        try:
            log = PartitionLog.open(disk, _DIRECTORY, _CONFIG, now_ms=3_000)
        except CorruptLog:
            continue
        batches_found = _batches(log)
        assert log.start_offset <= log.durable_offset <= log.end_offset
        log.append(bytearray(_BATCH), read_header(_BATCH), now_ms=4_000)
        end_offset = log.end_offset
        log.close()
        log = PartitionLog.open(disk, _DIRECTORY, _CONFIG, now_ms=5_000, verify=True)
        assert log.end_offset == end_offset
        assert _batches(log) == [*batches_found, (end_offset - 1, end_offset)]
        log.close()


def _batches(log: PartitionLog) -> list[tuple[int, int]]:
    """The first offset and the end of every batch. Their records are the readers' business."""
    found: list[tuple[int, int]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.reader.read(offset, max_bytes=1, end_offset=log.end_offset)
        assert read.slice is not None
        header = check_batch(read.slice.file.pread(read.slice.size, read.slice.position))
        read.slice.release()
        assert header.size_bytes == read.slice.size
        assert offset <= header.base_offset < header.next_offset <= log.end_offset
        assert read.next_offset == header.next_offset
        found.append((header.base_offset, header.next_offset))
        offset = read.next_offset
    return found


FOUND_LOG = Target("found log", recover_log, batches())
