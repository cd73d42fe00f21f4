"""A log that was closed in order, and the same with one bit changed."""

from __future__ import annotations

from millrace_server.log import LogConfig, PartitionLog
from tests.crash.durable_states import MomentDisk
from tests.server.log.log_model import DIRECTORY, append

CONFIG = LogConfig(segment_bytes=1_200, index_interval_bytes=200)
COUNT = 16
FIRST, LAST = "00000000000000000000", "00000000000000000012"
EPOCH_BYTES = range(12, 16)
"""The leader epoch, which is not part of what the CRC covers, as in Kafka."""


def closed_log() -> dict[str, bytes | None]:
    """The files of a log that was closed in order."""
    disk = MomentDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(COUNT):
        append(log, [b"%03d" % number + b"v" * 100], timestamps_ms=number)
    log.close()
    return disk.contents()


FILES = closed_log()
RECORDS = [(number, number, b"%03d" % number + b"v" * 100) for number in range(COUNT)]


def flipped(name: str, position: int, bit: int) -> MomentDisk:
    files = dict(FILES)
    content = bytearray(files[f"{DIRECTORY}/{name}"] or b"")
    content[position] ^= 1 << bit
    files[f"{DIRECTORY}/{name}"] = bytes(content)
    return MomentDisk.holding(files)


def size(name: str) -> int:
    return len(FILES[f"{DIRECTORY}/{name}"] or b"")
