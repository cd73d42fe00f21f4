"""A follower's log that is given up and begun anew, before or behind its end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from millrace_server.log import PartitionLog
from millrace_simulation.disk import FaultyDisk
from tests.crash.durable_states import MomentDisk, Tally, states
from tests.server.log.keyed_log import append_pairs, clean
from tests.server.log.log_model import DIRECTORY
from tests.server.log.test_log_epochs import CONFIG, from_leader, log_of, reopened, values

BEGIN = 100
OLD = [b"%d" % number for number in range(8)]


def test_a_log_begins_anew_behind_its_end_and_goes_on() -> None:
    disk, log = log_of(*range(8))
    held = log.reader.read(7, max_bytes=1000, end_offset=8).slice
    assert held is not None
    before = held.file.pread(held.size, held.position)
    assert log.begin_at(BEGIN) == BEGIN
    assert (log.start_offset, log.durable_offset, log.end_offset) == (BEGIN, BEGIN, BEGIN)
    assert values(log) == []
    assert held.file.pread(held.size, held.position) == before, "a reader keeps what it has"
    held.release()
    log.append_as_follower(from_leader(b"new", BEGIN, 20), now_ms=1)
    log.flush()
    for again in (reopened(disk.after_power_cut(random.Random(1))), reopened(disk)):
        assert (again.start_offset, again.end_offset) == (BEGIN, BEGIN + 1)
        assert values(again) == [b"new"]
        again.close()
    segments = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert segments == [f"{BEGIN:020d}.log"]


def test_an_empty_log_begins_anew_too() -> None:
    _, log = log_of()
    log.begin_at(BEGIN)
    log.append_as_follower(from_leader(b"new", BEGIN, 3), now_ms=1)
    assert values(log) == [b"new"]


def test_a_log_begins_anew_twice() -> None:
    disk, log = log_of(0)
    log.begin_at(BEGIN)
    log.begin_at(2 * BEGIN)
    assert (reopened(disk).start_offset, log.end_offset) == (2 * BEGIN, 2 * BEGIN)


@pytest.mark.parametrize("offset", [0, 2, 5, 7, 8])
def test_a_log_begins_anew_anywhere_before_its_end(offset: int) -> None:
    disk, log = log_of(*range(8))
    log.advance_start(5, high_watermark=8)
    assert log.begin_at(offset) == offset
    assert (log.start_offset, log.durable_offset, log.end_offset) == (offset, offset, offset)
    log.append_as_follower(from_leader(b"new", offset, 20), now_ms=1)
    log.flush()
    for again in (reopened(disk.after_power_cut(random.Random(1))), reopened(disk)):
        assert (again.start_offset, again.end_offset) == (offset, offset + 1)
        assert values(again) == [b"new"]
        again.close()
    segments = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert segments == [f"{offset:020d}.log"]


def test_a_log_that_compaction_has_cleaned_begins_anew_before_its_end() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, replace(CONFIG, deletes=False, compacts=True))
    for number in range(20):
        append_pairs(log, [(b"key", b"%d" % number)])
        log.flush(checkpoint=True)
    assert clean(log, 2000) is not None
    assert any(name.count(".") == 2 for name in disk.list_directory(DIRECTORY))
    log.begin_at(0)
    log.append_as_follower(from_leader(b"new", 0, 20), now_ms=1)
    log.flush()
    assert values(reopened(disk)) == [b"new"]


@pytest.mark.parametrize("begin", [0, 3, BEGIN])
def test_a_power_cut_at_any_moment_leaves_the_old_log_or_an_empty_one(begin: int) -> None:
    disk = MomentDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number, value in enumerate(OLD):
        log.append_as_follower(from_leader(value, number, number), now_ms=1)
    log.flush()
    is_begun: list[bool] = []
    disk.facts = lambda: bool(is_begun)
    log.begin_at(begin)
    is_begun.append(True)
    log.append_as_follower(from_leader(b"new", begin, 20), now_ms=1)
    log.flush()
    tally, found_old, found_new = Tally(), 0, 0
    for moment in disk.moments:
        for found in states(moment, tally, limit=30, rng=random.Random(1)):
            again = reopened(found)
            if values(again) == OLD:
                found_old += 1
                assert not moment.facts
            elif again.start_offset == begin:
                found_new += 1
                assert values(again) in ([], [b"new"])
            else:
                assert not moment.facts
                assert again.start_offset == again.end_offset == len(OLD) + 1
            again.close()
    assert found_old > 8
    assert found_new > 12
