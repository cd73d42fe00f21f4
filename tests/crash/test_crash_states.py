"""No state that a power cut can leave, and no operation that fails, loses an acked record.

Some states of each moment, and one operation of `OPERATIONS_APART`: `python -m tests.crash.states`
has all of them.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
from collections.abc import Callable

import pytest

from millrace_server.environment.seams import Disk
from millrace_server.log import (
    LogConfig,
    Swap,
    checkpoint,
    verdicts,
)
from millrace_server.log.compaction import cleaned_segment, cleaning
from millrace_server.log.compaction.cleaned_segment import CleanedSegment
from millrace_server.log.compaction.cleaner import LogCleaner
from millrace_server.log.flush import FlushTicket
from millrace_server.log.integrity.scan import Ending
from millrace_server.log.recovery_point import RecoveryPoint, RecoveryPointFile
from millrace_server.partitions import storage
from millrace_server.partitions.partition import Partition
from tests.crash import broker_life, broker_states, log_states
from tests.crash.durable_states import MomentDisk, Tally, states
from tests.crash.io_failures import FAULTS, check_broker_failure, check_log
from tests.crash.kill_damage import check_kills

OPERATIONS_APART = 9
STATES_OF_A_MOMENT = (6, 60, 300)
"""A few states of every moment show most steps that are left out; for the others come more."""


def compact_into_parts(life: log_states.LogLife) -> None:
    """What is left of one segment needs more than one."""
    life.append(90, 90, 90, 90, 90, 300)
    life.flush(checkpoint=True)
    life.roll()
    life.flush()
    life.clean()
    life.append(300)
    life.flush()


def with_segments_that_hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segment, "SEGMENT_BYTES_MAX", 100)


@pytest.mark.parametrize(("live", "config"), log_states.LIVES.values(), ids=log_states.LIVES)
def test_every_state_a_power_cut_can_leave_of_a_log_is_recovered(
    live: log_states.Live, config: LogConfig
) -> None:
    tally = log_states.check_life(live, config, limit=30, nested=1)
    assert tally.checked > 50


@pytest.mark.parametrize(("live", "config"), log_states.LIVES.values(), ids=log_states.LIVES)
def test_after_a_kill_damage_to_acked_records_is_not_taken_for_a_torn_tail(
    live: log_states.Live, config: LogConfig
) -> None:
    assert check_kills(live, config, flips=20) > 25


@pytest.mark.parametrize(
    "live",
    [log_states.compact, log_states.compact_what_the_recovery_point_names, compact_into_parts],
)
def test_a_compacted_log_that_lost_its_checkpoint_says_the_same(
    monkeypatch: pytest.MonkeyPatch, live: log_states.Live
) -> None:
    if live is compact_into_parts:
        with_segments_that_hold_little(monkeypatch)
    assert log_states.check_lost_checkpoints(live, log_states.COMPACTED) > 30


@pytest.mark.parametrize("code", [None, *FAULTS])
def test_a_group_that_becomes_several_segments_is_swapped_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    with_segments_that_hold_little(monkeypatch)
    if code is None:
        life = log_states.LogLife(MomentDisk(), log_states.COMPACTED)
        compact_into_parts(life)
        assert [segment.generation for segment in life.log._chain.segments] == [1, 1, 1, 0]
        tally = log_states.check_life(compact_into_parts, log_states.COMPACTED, limit=1_000)
        assert tally.checked > 50
        return
    number = 0
    while check_log(compact_into_parts, log_states.COMPACTED, number=number, code=code) is not None:
        number += 1
    assert number > 50


@pytest.mark.parametrize("live", broker_life.LIVES.values(), ids=broker_life.LIVES)
async def test_every_state_a_power_cut_can_leave_of_a_broker_is_recovered(
    live: broker_life.Live,
) -> None:
    tally = await broker_states.check_life(live, limit=3)
    assert tally.checked > 80


@pytest.mark.parametrize("seed", range(1))
async def test_lives_drawn_from_seeds_are_recovered(seed: int) -> None:
    for config in (log_states.SMALL, log_states.COMPACTED):
        log_states.check_life(log_states.at_random(seed), config, limit=4)
        assert check_kills(log_states.at_random(seed), config, flips=3)
    await broker_states.check_life(broker_life.at_random(seed), limit=3)


@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize(("live", "config"), log_states.LIVES.values(), ids=log_states.LIVES)
def test_any_operation_of_a_log_may_fail(
    live: log_states.Live, config: LogConfig, code: int
) -> None:
    refused = 0
    for number in itertools.count(FAULTS.index(code), OPERATIONS_APART):
        count = check_log(live, config, number=number, code=code)
        if count is None:
            break
        refused += count > 0
    assert number > 10
    assert refused > 0


@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("live", broker_life.LIVES.values(), ids=broker_life.LIVES)
async def test_any_operation_of_a_broker_may_fail(live: broker_life.Live, code: int) -> None:
    refused = 0
    for number in itertools.count(FAULTS.index(code), OPERATIONS_APART):
        count = await check_broker_failure(live, number=number, code=code)
        if count is None:
            break
        refused += count > 0
    assert number > 50
    assert refused > 2


# What the enumeration must be able to see: each of these is a step left out.


def without_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(ticket: FlushTicket) -> None:
        ticket._save_epochs()
        for file in ticket.dirty:
            file.sync()

    monkeypatch.setattr(FlushTicket, "sync", sync)


def without_data_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlushTicket, "sync", lambda ticket: None)


def with_the_oldest_segment_synced_last_and_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(ticket: FlushTicket) -> None:
        for file in ticket.dirty[1:] or ticket.dirty:
            file.sync()
        if ticket.sync_directory:
            ticket.disk.sync_directory(ticket.directory)

    monkeypatch.setattr(FlushTicket, "sync", sync)


def with_the_checkpoint_before_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = FlushTicket.sync

    def checkpoint_first(ticket: FlushTicket) -> None:
        if ticket.checkpoint is not None:
            checkpoint.write_checkpoint(ticket.disk, ticket.directory, ticket.checkpoint)
        sync(ticket)

    monkeypatch.setattr(FlushTicket, "sync", checkpoint_first)


def with_removals_before_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = FlushTicket.settle

    def remove_first(ticket: FlushTicket) -> None:
        ticket._remove()
        settle(ticket)

    monkeypatch.setattr(FlushTicket, "settle", remove_first)


def with_damage_refused_behind_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    table = dict(verdicts._TABLE)
    for ending in (Ending.BAD, Ending.DAMAGED, Ending.MISSING, Ending.TORN):
        durable, _, last, earlier = table[ending]
        table[ending] = (durable, verdicts.Verdict.REFUSE, last, earlier)
    monkeypatch.setattr(verdicts, "_TABLE", table)


def with_the_recovery_point_before_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = FlushTicket.sync

    def note_first(ticket: FlushTicket) -> None:
        if ticket.recovery_point is not None:
            ticket._write_recovery_point(ticket.recovery_point)
        sync(ticket)

    monkeypatch.setattr(FlushTicket, "sync", note_first)


def with_the_recovery_point_before_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(ticket: FlushTicket) -> None:
        for file in ticket.dirty:
            file.sync()
        if ticket.recovery_point is not None:
            ticket._write_recovery_point(ticket.recovery_point)
        if ticket.sync_directory:
            ticket.disk.sync_directory(ticket.directory)

    monkeypatch.setattr(FlushTicket, "sync", sync)


def with_replaced_segments_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    swap = LogCleaner.swap

    def remove_first(cleaner: LogCleaner, done: Swap) -> bool:
        for segment in done.replaced:
            segment.remove_files()
        return swap(cleaner, done)

    monkeypatch.setattr(LogCleaner, "swap", remove_first)


def with_cleaned_segments_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(cleaned: CleanedSegment) -> None:
        cleaned._written()
        cleaned._close_file()
        cleaned.segment.save_indexes()
        cleaned.segment.are_indexes_saved = True
        cleaned.segment.close_files()

    monkeypatch.setattr(CleanedSegment, "finish", finish)


def with_cleaned_segments_named_and_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_names(disk: Disk, directory: str, cleaned: list[CleanedSegment]) -> None:
        for one in cleaned:
            one.give_name()

    monkeypatch.setattr(cleaning, "give_names", give_names)


@pytest.mark.parametrize(
    "break_it",
    [
        without_directory_sync,
        without_data_sync,
        with_replaced_segments_removed_at_once,
        with_cleaned_segments_not_synced,
        with_cleaned_segments_named_and_not_synced,
        with_the_recovery_point_before_the_data,
        with_the_recovery_point_before_the_directory,
        with_the_oldest_segment_synced_last_and_not_at_all,
        with_the_checkpoint_before_the_data,
        with_removals_before_the_checkpoint,
        with_damage_refused_behind_the_checkpoint,
    ],
)
def test_a_log_that_leaves_a_step_out_is_caught(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError, match="before operation"):
        for limit in STATES_OF_A_MOMENT:
            for live, config in log_states.LIVES.values():
                log_states.check_life(live, config, limit=limit)


def without_a_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecoveryPointFile, "write", lambda file, point: None)


def with_a_recovery_point_after_the_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    write, waiting = RecoveryPointFile.write, list[RecoveryPoint]()

    def one_late(file: RecoveryPointFile, point: RecoveryPoint) -> None:
        waiting.append(point)
        if len(waiting) > 1:
            write(file, waiting[-2])

    monkeypatch.setattr(RecoveryPointFile, "write", one_late)


def with_damage_cut_before_the_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {ending: (row[1], *row[1:]) for ending, row in verdicts._TABLE.items()}
    monkeypatch.setattr(verdicts, "_TABLE", table)


@pytest.mark.parametrize(
    "break_it",
    [
        without_a_recovery_point,
        with_a_recovery_point_after_the_ack,
        with_damage_cut_before_the_recovery_point,
    ],
)
def test_a_log_that_truncates_acked_records_is_caught(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError, match=r"is known to be durable|was not refused"):
        for live, config in log_states.LIVES.values():
            check_kills(live, config, flips=3)


def without_the_root_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    synced = MomentDisk.sync_directory

    def sync_directory(disk: MomentDisk, path: str) -> None:
        if path:
            synced(disk, path)

    monkeypatch.setattr(MomentDisk, "sync_directory", sync_directory)


def with_deleted_partitions_removed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(disk: Disk, directories: list[str]) -> None:
        for directory in directories:
            disk.remove_directory(directory)

    monkeypatch.setattr(storage, "_remove", remove)


def with_a_topic_written_before_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "write_identity", lambda disk, directory, topic_id: None)


def with_deletions_answered_before_they_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_durable(partition: Partition, offset: int) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    monkeypatch.setattr(Partition, "start_durable", start_durable)


@pytest.mark.parametrize(
    "break_it",
    [
        with_deletions_answered_before_they_are_durable,
        without_the_root_synced,
        with_deleted_partitions_removed_in_place,
        with_a_topic_written_before_its_partitions,
        without_directory_sync,
    ],
)
async def test_a_broker_that_leaves_a_step_out_is_caught(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        for limit in STATES_OF_A_MOMENT:
            for live in broker_life.LIVES.values():
                await broker_states.check_life(live, limit=limit)


def test_each_combination_of_lost_writes_is_generated_once() -> None:
    disk = MomentDisk()
    disk.make_directory("d")
    disk.sync_directory("")
    file = disk.open("d/synced", create=True, write=True)
    file.pwrite(b"a" * 700, 0)
    file.sync()
    disk.sync_directory("d")
    file.pwrite(b"b" * 100, 500)
    disk.open("d/new", create=True, write=True).pwrite(b"c", 0)
    found = [
        disk.contents()
        for disk in states(disk.moment(None), Tally(), limit=100, rng=random.Random(1))
    ]
    old, left, right, both = (
        b"a" * 500 + first + second + b"a" * 100
        for first, second in (
            (b"a" * 12, b"a" * 88),
            (b"b" * 12, b"a" * 88),
            (b"a" * 12, b"b" * 88),
            (b"b" * 12, b"b" * 88),
        )
    )
    expected = [
        {"": None, "d": None, "d/synced": content, **new}
        for content in (old, left, right, both)
        for new in ({}, {"d/new": b""}, {"d/new": b"c"})
    ]
    assert len(found) == len(expected)
    assert all(state in found for state in expected)
