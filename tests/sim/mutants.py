"""`python -m tests.sim.mutants`: bugs that brokers have had, planted; each must be found.

Owns the bugs: each is a function that breaks the broker through the patch it is given. What is
not found says that the simulation looks away.
"""

from __future__ import annotations

import argparse
import errno
import multiprocessing
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

from millrace_protocol.records import HEADER_SIZE, decode, read_header, validate
from millrace_server.log import (
    LogConfig,
    PartitionLog,
    log_start,
    reader,
    recovery,
    retention,
    timestamps,
    verdicts,
)
from millrace_server.log.checkpoint import Checkpoint
from millrace_server.log.flush import FlushTicket
from millrace_server.log.integrity import verification
from millrace_server.log.integrity.scan import BatchScan
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.producers import Producers
from millrace_server.log.recovery import _Recovery
from millrace_server.log.segment import Segment
from millrace_server.log.verdicts import Verdict
from millrace_server.partitions.partition import Partition
from tests.sim.scenario import run_seed

Patch = Callable[[Any, str, Any], None]


def acks_before_the_sync(patch: Patch) -> None:
    patch(Partition, "is_acked", lambda self, end_offset: True)


def skips_the_sync_of_data(patch: Patch) -> None:
    def sync(self: FlushTicket) -> None:
        if self.sync_directory:
            self.disk.sync_directory(self.directory)

    patch(FlushTicket, "sync", sync)


def skips_the_sync_of_a_new_segments_directory(patch: Patch) -> None:
    def sync(self: FlushTicket) -> None:
        for file in self.dirty:
            file.sync()

    patch(FlushTicket, "sync", sync)


def syncs_the_active_segment_only(patch: Patch) -> None:
    original = FlushTicket.sync

    def sync(self: FlushTicket) -> None:
        del self.dirty[:-1]
        original(self)

    patch(FlushTicket, "sync", sync)


def takes_what_was_appended_during_a_sync_for_durable(patch: Patch) -> None:
    def finish_flush(self: PartitionLog, ticket: FlushTicket) -> None:
        self._durability.durable_end = Boundary(self._chain.active.size_bytes, self.end_offset)

    patch(PartitionLog, "finish_flush", finish_flush)


def shows_consumers_what_is_not_durable(patch: Patch) -> None:
    original = Partition.append

    def append(self: Partition, *args: Any, **options: Any) -> Any:
        appended = original(self, *args, **options)
        self._move_high_watermark(self.log.end_offset)
        return appended

    patch(Partition, "append", append)


def goes_on_after_a_failed_sync(patch: Patch) -> None:
    original = FlushTicket.sync

    def sync(self: FlushTicket) -> None:
        with suppress(OSError):
            original(self)

    patch(FlushTicket, "sync", sync)


def acks_what_a_full_disk_refused(patch: Patch) -> None:
    original = Segment.write

    def write(self: Segment, batch: Any) -> None:
        try:
            original(self, batch)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    patch(Segment, "write", write)


def uses_an_offset_twice_after_a_restart(patch: Patch) -> None:
    original = _Recovery._recover

    def recover(self: _Recovery) -> Any:
        recovered = original(self)
        active = recovered.segments[-1]
        if recovered.report.scanned_bytes and active.end_offset > active.base_offset:
            active.end_offset -= 1
        return recovered

    patch(_Recovery, "_recover", recover)


def forgets_what_lies_behind_the_checkpoint(patch: Patch) -> None:
    patch(BatchScan, "__iter__", lambda self: iter(()))


def forgets_the_producers_of_a_checkpoint(patch: Patch) -> None:
    patch(Checkpoint, "restore_producers", lambda self: Producers())


def forgets_the_producers_behind_a_checkpoint(patch: Patch) -> None:
    original = _Recovery._scan_segment

    def scan(self: _Recovery, segment: Any, producers: Any, **options: Any) -> Any:
        return original(self, segment, Producers(), **options)

    patch(_Recovery, "_scan_segment", scan)


def does_not_recognise_duplicates(patch: Patch) -> None:
    patch(Producers, "check", lambda self, header: None)


def answers_changes_of_topics_before_they_are_durable(patch: Patch) -> None:
    original = Partition.is_acked

    def is_acked(self: Partition, end_offset: int) -> bool:
        return self.topic == "__cluster_metadata" or original(self, end_offset)

    patch(Partition, "is_acked", is_acked)


def cuts_a_log_wherever_it_is_damaged(patch: Patch) -> None:
    original = verdicts.verdict

    def verdict(*args: Any, **options: Any) -> Verdict:
        decision = original(*args, **options)
        return Verdict.CUT if decision is Verdict.REFUSE else decision

    patch(recovery, "verdict", verdict)


def shows_a_batch_before_it_is_written(patch: Patch) -> None:
    original = Segment.extend

    def write(self: Segment, batch: Any) -> None:
        header, position = read_header(batch), self.size_bytes
        original(
            self,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            size_bytes=header.size_bytes,
            max_timestamp=header.max_timestamp,
        )
        self.file.pwrite(batch, position)

    def extend(self: Segment, *, base_offset: int, **rest: Any) -> None:
        if base_offset >= self.end_offset:
            original(self, base_offset=base_offset, **rest)

    patch(Segment, "write", write)
    patch(Segment, "extend", extend)


def uses_an_offset_again_after_its_index_failed(patch: Patch) -> None:
    """KAFKA-7866: the index is written by the append, and the batch is in the log already."""
    original = PartitionLog.append

    def append(self: PartitionLog, *args: Any, **options: Any) -> Any:
        end_offset = self.end_offset
        appended = original(self, *args, **options)
        try:
            self._chain.active.file.preallocate(0)
        except OSError:
            self._state.end_offset = end_offset
            raise
        return appended

    patch(PartitionLog, "append", append)


def leaves_what_a_failed_write_left(patch: Patch) -> None:
    def write(self: Segment, batch: Any) -> None:
        try:
            self.file.pwrite(batch, self.size_bytes)
        except OSError:
            self.size_bytes += HEADER_SIZE
            raise

    patch(Segment, "write", write)


def removes_what_is_younger_than_retention_allows(patch: Patch) -> None:
    original = retention.is_too_old

    def is_too_old(segment: Segment, config: LogConfig, *, now_ms: int) -> bool:
        return original(segment, config, now_ms=now_ms + max(0, config.retention_ms) // 2)

    patch(retention, "is_too_old", is_too_old)


def removes_one_segment_too_many(patch: Patch) -> None:
    original = retention.expired_segments

    def expired_segments(segments: Any, config: LogConfig, **options: Any) -> int:
        count = original(segments, config, **options)
        return min(count + 1, len(segments) - 1) if count else 0

    patch(log_start, "expired_segments", expired_segments)


def finds_a_time_one_segment_too_late(patch: Patch) -> None:
    original = timestamps.first_candidate

    def first_candidate(segments: Any, *args: Any, **options: Any) -> Any:
        return original(segments[1:] or segments, *args, **options)

    patch(reader, "first_candidate", first_candidate)


class _AnyChecksum:
    """Equal to every other."""

    def __ne__(self, other: object) -> bool:
        return False


def hands_out_what_fails_its_crc(patch: Patch) -> None:
    """Neither the broker nor the client looks."""
    original = validate.check_batch

    def check_batch(buf: Any, position: int = 0, **_: Any) -> Any:
        return original(buf, position, check_crc=False)

    patch(verification, "crc32c", SimpleNamespace(crc32c=lambda *_: _AnyChecksum()))
    patch(decode, "check_batch", check_batch)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    acks_before_the_sync,
    skips_the_sync_of_data,
    skips_the_sync_of_a_new_segments_directory,
    syncs_the_active_segment_only,
    takes_what_was_appended_during_a_sync_for_durable,
    shows_consumers_what_is_not_durable,
    goes_on_after_a_failed_sync,
    acks_what_a_full_disk_refused,
    uses_an_offset_twice_after_a_restart,
    forgets_what_lies_behind_the_checkpoint,
    forgets_the_producers_of_a_checkpoint,
    forgets_the_producers_behind_a_checkpoint,
    does_not_recognise_duplicates,
    answers_changes_of_topics_before_they_are_durable,
    cuts_a_log_wherever_it_is_damaged,
    shows_a_batch_before_it_is_written,
    uses_an_offset_again_after_its_index_failed,
    leaves_what_a_failed_write_left,
    removes_what_is_younger_than_retention_allows,
    removes_one_segment_too_many,
    finds_a_time_one_segment_too_late,
    hands_out_what_fails_its_crc,
)


def hunt(number: int, seeds: range) -> tuple[int, int | None, str]:
    """The first of `seeds` that finds a mutant, and how it shows."""
    with ExitStack() as stack:

        def patch(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        MUTANTS[number](patch)
        for seed in seeds:
            outcome = run_seed(seed)
            if outcome.violations:
                return number, seed, outcome.violations[0]
    return number, None, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds each may take")
    parser.add_argument("--only", default="", help="mutants with this in their names")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    started_s = time.monotonic()
    chosen = [n for n, mutant in enumerate(MUTANTS) if options.only in mutant.__name__]
    escaped = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool:
        hunts = [pool.apply_async(hunt, (number, range(options.seeds))) for number in chosen]
        for number, seed, violation in (each.get() for each in hunts):
            name = MUTANTS[number].__name__.replace("_", " ")
            if seed is None:
                escaped += 1
                print(f"ESCAPED {name}", flush=True)
            else:
                print(f"seed {seed:3} {name}: {violation[:110]}", flush=True)
    print(f"{len(chosen) - escaped} of {len(chosen)}, {time.monotonic() - started_s:.0f} s")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
