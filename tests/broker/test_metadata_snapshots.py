"""Snapshots of the metadata: a start loads the newest whole one, and the log behind it."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Sequence

import pytest

from millrace_protocol.metadata_records import TopicRecord
from millrace_server.controller import snapshots
from millrace_server.controller.snapshots import find_snapshots, write_snapshot
from millrace_server.log.checkpoint import read_checkpoint
from millrace_server.metadata.delta import preview
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot, encode_snapshot
from millrace_server.quorum.metadata_log import MetadataLog
from millrace_server.raft.messages import SnapshotId
from millrace_server.services.request_context import THIS_BROKER
from millrace_simulation.disk import FaultyDisk
from tests.crash.durable_states import MomentDisk, Tally, states
from tests.crash.machine_in_memory import broker_on

DIRECTORY = "__cluster_metadata-0"


async def live(disk: FaultyDisk, *, create: Sequence[str] = (), snapshot_bytes: int = 1) -> str:
    """The image, as text, of a broker that creates topics, in order, and stops."""
    broker = broker_on(disk, metadata_snapshot_bytes=snapshot_bytes)
    await broker.start()
    for name in create:
        await broker.topics.create(THIS_BROKER, name)
    known = repr(broker.image.topics)
    await broker.stop()
    return known


def log_start(disk: FaultyDisk) -> int:
    """Where the metadata log of a stopped broker begins."""
    checkpoint = read_checkpoint(disk, DIRECTORY)
    assert checkpoint is not None
    return checkpoint.start_offset


def path(snapshot: SnapshotId) -> str:
    return snapshots.snapshot_path(DIRECTORY, snapshot)


async def test_a_start_reads_the_newest_snapshot_and_the_log_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FaultyDisk()
    known = await live(disk, create="abc")
    kept = find_snapshots(disk, DIRECTORY)
    assert len(kept) == snapshots.SNAPSHOTS_KEPT
    read_from: list[int] = []
    read = MetadataLog.read

    def noted(self: MetadataLog, offset: int) -> object:
        read_from.append(offset)
        return read(self, offset)

    monkeypatch.setattr(MetadataLog, "read", noted)
    assert await live(disk, snapshot_bytes=1 << 20) == known
    assert read_from[0] == kept[-1].end_offset


async def test_the_log_grows_by_the_setting_from_one_snapshot_to_the_next() -> None:
    disk = FaultyDisk()
    await live(disk, create="abc", snapshot_bytes=1 << 20)
    assert find_snapshots(disk, DIRECTORY) == []


@pytest.mark.parametrize("end", [0, 20, -1])
async def test_a_torn_snapshot_is_passed_over_for_the_one_before_it(end: int) -> None:
    disk = FaultyDisk()
    known = await live(disk, create="abc")
    newest = path(find_snapshots(disk, DIRECTORY)[-1])
    file = disk.open(newest, write=True)
    file.truncate(len(disk.file_bytes(newest)) + end if end < 0 else end)
    file.sync()
    file.release()
    assert await live(disk, snapshot_bytes=1 << 20) == known


async def test_the_log_is_whole_until_two_snapshots_stand_for_its_begin() -> None:
    disk = FaultyDisk()
    known = await live(disk, create="a", snapshot_bytes=500)
    (only,) = find_snapshots(disk, DIRECTORY)
    assert log_start(disk) == 0
    disk.flip_bit(path(only), 100, 3)
    assert await live(disk, snapshot_bytes=1 << 20) == known


async def test_what_lies_before_the_older_snapshot_is_deleted() -> None:
    disk = FaultyDisk()
    await live(disk, create="abcdefgh", snapshot_bytes=500)
    older, _ = find_snapshots(disk, DIRECTORY)
    assert log_start(disk) == older.end_offset
    segments = [n for n in disk.list_directory(DIRECTORY) if n.endswith(".log")]
    assert 1 <= len(segments) <= 6
    assert int(segments[0][:20]) > 0


async def test_a_start_without_any_whole_snapshot_is_refused_when_the_log_begins_later() -> None:
    disk = FaultyDisk()
    await live(disk, create="abc")
    for snapshot in find_snapshots(disk, DIRECTORY):
        disk.flip_bit(path(snapshot), 100, 3)
    with pytest.raises(UnreadableMetadata, match="is needed from 0 on: restore the whole"):
        await live(disk)
    assert disk.open_files == []


@pytest.mark.parametrize("is_newest_torn", [False, True])
async def test_a_power_cut_at_any_moment_of_deleting_the_log_leaves_what_a_start_needs(
    is_newest_torn: bool,
) -> None:
    disk = MomentDisk()
    broker = broker_on(disk, metadata_snapshot_bytes=500)
    await broker.start()
    committed: list[str] = []
    disk.facts = lambda: tuple(committed)
    for name in "abcdef":
        await broker.topics.create(THIS_BROKER, name)
        committed.append(name)
    disk.facts = None
    await broker.stop()
    tally, starts, rng = Tally(), set(), random.Random(1)
    for moment in disk.moments:
        for found in states(moment, tally, limit=3, rng=rng):
            snapshots_there = find_snapshots(found, DIRECTORY)
            if is_newest_torn and len(snapshots_there) > 1:
                found.flip_bit(path(snapshots_there[-1]), 100, 3)
            again = broker_on(found, seed=2)
            await again.start()
            assert set(moment.facts) <= set(again.image.topics)  # type: ignore[call-overload]
            metadata = again.partitions.get(DIRECTORY.rpartition("-")[0], 0)
            starts.add(metadata.start_offset)
            await again.stop()
    assert len(starts) > 2
    assert tally.checked > 200


async def test_a_snapshot_behind_the_end_of_the_log_is_refused() -> None:
    disk = FaultyDisk()
    await live(disk, create="a")
    image = ClusterImage(end_offset=1_000, cluster_id=uuid.UUID(int=1), feature_level=1)
    write_snapshot(disk, DIRECTORY, image, epoch=1, now_ms=1)
    with pytest.raises(UnreadableMetadata, match="is needed from 1000 on: restore the whole"):
        await live(disk)
    assert disk.open_files == []


async def test_a_full_disk_costs_the_snapshot_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshots, "write_snapshot", refuse)
    disk = FaultyDisk()
    known = await live(disk, create="ab")
    assert find_snapshots(disk, DIRECTORY) == []
    assert await live(disk) == known


def test_a_power_cut_while_a_snapshot_is_written_leaves_a_whole_one() -> None:
    images = [ClusterImage(1, uuid.UUID(int=1), 1)]
    for number in range(2, 5):
        topic = TopicRecord(f"t{number}", uuid.UUID(int=number))
        image = preview(images[-1], [topic])
        images.append(ClusterImage(number, image.cluster_id, 1, topics=image.topics))
    disk = MomentDisk()
    disk.make_directory(DIRECTORY)
    disk.sync_directory("")
    written = 0
    disk.facts = lambda: written
    for image in images:
        write_snapshot(disk, DIRECTORY, image, epoch=1, now_ms=1)
        written = image.end_offset
    tally = Tally()
    for moment in disk.moments:
        for found in states(moment, tally, limit=50, rng=random.Random(1)):
            whole = []
            for snapshot in find_snapshots(found, DIRECTORY):
                data = found.file_bytes(path(snapshot))
                whole.append(decode_snapshot(data, end_offset=snapshot.end_offset).end_offset)
            assert max(whole, default=0) >= int(str(moment.facts))
    assert tally.checked > 15


def test_any_byte_that_changed_makes_a_snapshot_torn() -> None:
    image = ClusterImage(7, uuid.UUID(int=1), 1, next_producer_id=9)
    data = encode_snapshot(image, now_ms=1)
    assert decode_snapshot(data, end_offset=7) == image
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        # A batch's base offset and leader epoch lie outside its CRC, and mean nothing here.
        if position in range(8) or position in range(12, 16):
            continue
        with pytest.raises(TornSnapshot):
            decode_snapshot(bytes(changed), end_offset=7)
    for end in range(len(data)):
        with pytest.raises(TornSnapshot):
            decode_snapshot(data[:end], end_offset=7)
    with pytest.raises(TornSnapshot, match="header of offset 8"):
        decode_snapshot(data, end_offset=8)
