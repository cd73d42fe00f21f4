"""`python -m tests.sim.mutants`: bugs that brokers have had, planted; each must be found.

Owns the bugs: each is a function that breaks the broker or the client through the patch it is
given. What is not found says that the simulation looks away. How they are hunted is `hunt`'s.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from millrace._clock import wall_ms
from millrace._producer import produce_queue, sender
from millrace.errors import DeliveryTimeout
from millrace_protocol.metadata_records import LEADER_UNCHANGED, PartitionChangeRecord
from millrace_protocol.records import HEADER_SIZE, decode, read_header, validate
from millrace_protocol.records.header import LEADER_EPOCH_POSITION
from millrace_server.environment.seams import Environment
from millrace_server.log import (
    LogConfig,
    PartitionLog,
    log_start,
    partition_log,
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
from millrace_server.metadata.delta import Delta
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.purgatory import Purgatory
from tests.sim.hunt import Patch, hunt_all
from tests.sim.scenario import run_seed


def acks_before_the_sync(patch: Patch) -> None:
    patch(Partition, "is_acked", lambda self, end_offset: True)


def skips_the_sync_of_data(patch: Patch) -> None:
    original = FlushTicket.sync

    def sync(self: FlushTicket) -> None:
        dirty, self.dirty = self.dirty, []
        try:
            original(self)
        finally:
            self.dirty = dirty

    patch(FlushTicket, "sync", sync)


def skips_the_sync_of_a_new_segments_directory(patch: Patch) -> None:
    original = FlushTicket.sync

    def sync(self: FlushTicket) -> None:
        self.sync_directory = False
        original(self)

    patch(FlushTicket, "sync", sync)


def syncs_the_active_segment_only(patch: Patch) -> None:
    original = FlushTicket.sync

    def sync(self: FlushTicket) -> None:
        del self.dirty[:-1]
        original(self)

    patch(FlushTicket, "sync", sync)


def takes_what_was_appended_during_a_sync_for_durable(patch: Patch) -> None:
    original = PartitionLog.finish_flush

    def finish_flush(self: PartitionLog, ticket: FlushTicket) -> None:
        original(self, ticket)
        self._durability.durable_end = Boundary(self._chain.active.size_bytes, self.end_offset)

    patch(PartitionLog, "finish_flush", finish_flush)


def shows_consumers_what_is_not_durable(patch: Patch) -> None:
    original = Partition.append

    def append(self: Partition, *args: Any, **options: Any) -> Any:
        appended = original(self, *args, **options)
        self.advance_high_watermark(self.log.end_offset)
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
        file = self._chain.active.file
        try:
            # What an entry of an index takes; the index itself would not be missed at a start.
            file.preallocate(file.size() + 8)
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


def measures_waits_by_the_wall_clock(patch: Patch) -> None:
    """The broker's deadlines follow a clock that jumps."""
    original = Purgatory.__init__

    def construct(self: Purgatory, env: Environment) -> None:
        clock = SimpleNamespace(monotonic_ms=env.clock.wall_ms)
        original(self, replace(env, clock=clock))

    patch(Purgatory, "__init__", construct)


def measures_retries_by_the_wall_clock(patch: Patch) -> None:
    """The producer's deadlines follow a clock that jumps."""
    patch(sender, "monotonic_ms", wall_ms)


def says_that_an_overdue_batch_was_not_written(patch: Patch) -> None:
    """A pause lets the delivery time pass while the response waits in the kernel."""

    def construct(sentence: str) -> DeliveryTimeout:
        return DeliveryTimeout(sentence.replace("the log may have", "nothing was written:"))

    patch(produce_queue, "DeliveryTimeout", construct)


def writes_the_epoch_of_an_earlier_leader(patch: Patch) -> None:
    """The leader of every third epoch writes as if it were the first one."""

    def assign(batch: Any, *, base_offset: int, leader_epoch: int) -> None:
        validate.assign(batch, base_offset=base_offset, leader_epoch=leader_epoch % 3)

    patch(partition_log, "assign", assign)


def writes_its_epoch_into_old_batches(patch: Patch) -> None:
    """A new leader stamps what the one before it wrote."""
    original = PartitionLog.begin_epoch

    def begin_epoch(self: PartitionLog, epoch: int) -> None:
        original(self, epoch)
        active = self._chain.active
        if active.size_bytes:
            active.file.pwrite(epoch.to_bytes(4, "big"), LEADER_EPOCH_POSITION)

    patch(PartitionLog, "begin_epoch", begin_epoch)


def forgets_elections_at_a_restart(patch: Patch) -> None:
    """The metadata log is replayed without the changes of leaders."""
    original = Delta._replay_partition_change

    def replay(self: Delta, record: PartitionChangeRecord) -> None:
        if self.before.end_offset == 0:
            record = replace(record, leader=LEADER_UNCHANGED)
        original(self, record)

    patch(Delta, "_replay_partition_change", replay)


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
    measures_waits_by_the_wall_clock,
    measures_retries_by_the_wall_clock,
    says_that_an_overdue_batch_was_not_written,
    writes_the_epoch_of_an_earlier_leader,
    writes_its_epoch_into_old_batches,
    forgets_elections_at_a_restart,
)
TROUBLES_OF: dict[Callable[[Patch], None], tuple[str, ...]] = {
    answers_changes_of_topics_before_they_are_durable: ("power", "power_soon", "election"),
    cuts_a_log_wherever_it_is_damaged: ("rot", "kill"),
    forgets_the_producers_of_a_checkpoint: ("restart", "cut", "reset"),
    uses_an_offset_again_after_its_index_failed: ("full", "reset"),
    measures_waits_by_the_wall_clock: ("clock",),
    measures_retries_by_the_wall_clock: ("clock", "restart"),
    says_that_an_overdue_batch_was_not_written: ("pause", "client_pause"),
    writes_the_epoch_of_an_earlier_leader: ("election",),
    writes_its_epoch_into_old_batches: ("election",),
    forgets_elections_at_a_restart: ("election", "restart"),
}
"""The only troubles in the hunt for a mutant: those that shall find it."""


def main() -> int:
    conditions_of = {mutant: {"troubles": troubles} for mutant, troubles in TROUBLES_OF.items()}
    return hunt_all(MUTANTS, run_seed, conditions_of, (__doc__ or "").partition("\n")[0])


if __name__ == "__main__":
    from tests.sim import mutants

    # In a module of its own: processes that are spawned cannot import a `__main__`.
    sys.exit(mutants.main())
