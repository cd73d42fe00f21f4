"""Durable records of a killed process, damaged byte by byte, and refused by the next start.

A power cut may leave an old recovery point, and `log_states` looks at these. After a kill it is
exact: all that was acked lies before it or the checkpoint, and no damage behind the checkpoint and
before the recovery point may be taken for a torn tail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from millrace_protocol.records import HEADER_SIZE, batch_extent
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.log.checkpoint import read_checkpoint
from millrace_server.log.recovery_point import read_recovery_point
from tests.crash.durable_states import MomentDisk, Tally, states
from tests.crash.log_states import Live, moments_of
from tests.server.log.log_model import DIRECTORY

_EPOCH_BYTES = range(12, 16)
"""The leader epoch, which is not part of what the CRC covers, as in Kafka."""


def check_kills(live: Live, config: LogConfig, *, flips: int) -> int:
    """Kills a log at every moment of a life, and damages what was durable.

    In each batch `flips` bits change, one at a time. Returns how many changes were refused.
    Raises `AssertionError` for one that was not, or that changed something on the disk.
    """
    rng = random.Random(1)
    seen = set()
    refused = 0
    for moment in moments_of(live, config):
        if not moment.facts.is_created:
            continue
        *_, killed = states(moment, Tally(), limit=2, rng=rng)
        contents = killed.contents()
        checkpoint, point = (
            read_checkpoint(killed, DIRECTORY),
            read_recovery_point(killed, DIRECTORY),
        )
        assert checkpoint is not None
        known = max(checkpoint.end_offset, point.end_offset if point else 0)
        assert moment.facts.is_recovering or known >= moment.facts.durable, (
            "what was acked is known to be durable"
        )
        if (checkpoint, point) in seen:
            continue
        seen.add((checkpoint, point))
        for path, position, size_bytes in durable_batches(killed):
            for _ in range(flips):
                place = rng.choice((rng.randrange(HEADER_SIZE), rng.randrange(size_bytes)))
                if place in _EPOCH_BYTES:
                    continue
                changed = bytearray(contents[path] or b"")
                changed[position + place] ^= 1 << rng.randrange(8)
                _check_refused(MomentDisk.holding({**contents, path: bytes(changed)}), config)
                refused += 1
    return refused


def durable_batches(disk: MomentDisk) -> Iterator[tuple[str, int, int]]:
    """Path, position and size of each batch behind the checkpoint and before the recovery point."""
    checkpoint, point = read_checkpoint(disk, DIRECTORY), read_recovery_point(disk, DIRECTORY)
    if checkpoint is None or point is None or point.end_offset <= checkpoint.end_offset:
        return
    offset, base = checkpoint.end_offset, checkpoint.active_base_offset
    position = checkpoint.position
    while offset < point.end_offset:
        path = f"{DIRECTORY}/{base:020d}.log"
        content = disk.contents()[path] or b""
        found, size_bytes = batch_extent(content, position) if content[position:] else (-1, 0)
        if found < offset:
            # The segment ends here, with or without space reserved behind.
            assert position, f"no batch {offset} in {path}"
            base, position = offset, 0
            continue
        yield path, position, size_bytes
        offset = found + 1
        position += size_bytes
    assert (base, position) == (point.base_offset, point.position) or not point.position


def _check_refused(disk: MomentDisk, config: LogConfig) -> None:
    try:
        log = PartitionLog.open(disk, DIRECTORY, config, now_ms=3_000)
    except CorruptLog:
        assert all(step.startswith("sync ") for step in disk.journal), "the evidence is kept"
        assert disk.open_files == []
        return
    raise AssertionError(f"damage was not refused: {log.recovery}")
