"""A broker starts on a failing disk, and opens partitions once the cause has passed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.disk.os_disk import OsDisk
from millrace_server.machine import SystemClock
from millrace_server.partitions import opening
from millrace_server.partitions.storage import Identity, read_identity
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import (
    Wire,
    batch,
    connect,
    fetch_request,
    sequenced,
    until,
    values_of,
)

FIRST = "00000000000000000000.log"
RECORDS = [b"0", *(b"more %d" % n for n in range(20))]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "RETRY_MIN_MS", 1)
    monkeypatch.setattr(opening, "RETRY_MAX_MS", 5)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """As a power cut leaves it: of `t-0` the first record is known to be durable, 20 more are
    there; `t-1` holds one record."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with Broker(data=first) as broker, connect(broker.port) as wire:
        await wire.create("t", partitions=2)
        for partition in range(2):
            await wire.produce("t", batch(b"%d" % partition), partition=partition)
    async with Broker(data=first) as broker, connect(broker.port) as wire:
        for value in RECORDS[1:]:
            await wire.produce("t", batch(value))
        shutil.copytree(first, second)
    (second / "t-0" / "recovery-point").unlink()
    return second


async def reason(wire: Wire, partition: int = 0) -> str:
    fetched = await wire.fetch("t", 0, partition=partition)
    assert fetched.error_code
    return fetched.error_message or ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
async def test_durable_records_are_served_while_recovery_cannot_write(
    data: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millrace.opening")
    faults = Faults({"write": number}, where="/t-0/")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        fetched = await wire.fetch("t", 0)
        assert (values_of(fetched), fetched.high_watermark) == ([b"0"], 1)
        refused = await wire.produce("t", batch(b"x"))
        is_full = number != errno.EIO
        wanted = ErrorCode.DISK_FULL if is_full else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.error_code == wanted
        assert ERROR_TRAITS[wanted].retriable
        assert "delete" not in (refused.error_message or "")
        [line] = [r for r in caplog.records if "partition takes no appends" in r.getMessage()]
        assert line.levelname == "ERROR"
        assert os.strerror(number) in line.getMessage()
        met = faults.met
        await until(lambda: faults.met > met + 2)
        faults.errnos.clear()
        await until(lambda: node.broker.partitions.get("t", 0).high_watermark == len(RECORDS))
        assert values_of(await wire.fetch("t", 0)) == RECORDS
        assert (await wire.produce("t", batch(b"next"))).base_offset == len(RECORDS)
        assert not node.broker.failed.done()
        assert [r for r in caplog.records if "partition opened again" in r.getMessage()]


async def test_with_os_durability_the_high_watermark_does_not_go_back_on_a_full_disk(
    tmp_path: Path,
) -> None:
    """A kill loses nothing that consumers have read, also while recovery cannot write."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with Broker(data=first) as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"durability": "os"})
        for value in RECORDS:
            await wire.produce("t", batch(value))
        assert (await wire.fetch("t", 0)).high_watermark == len(RECORDS)
        shutil.copytree(first, second)
    faults = Faults({"write": errno.ENOSPC}, where="/t-0/")
    async with node_on(second, faults) as node, connect(node.address[1]) as wire:
        fetched = await wire.fetch("t", 0)
        assert (values_of(fetched), fetched.high_watermark) == (RECORDS, len(RECORDS))
        assert (await wire.produce("t", batch(b"x"))).error_code == ErrorCode.DISK_FULL


async def test_a_leader_that_cannot_write_takes_a_new_epoch_when_it_can(data: Path) -> None:
    """Its metadata change is applied at once, and holds up no later one."""
    faults = Faults({"write": errno.ENOSPC}, where="/t-0/")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        broker = node.broker
        topic_id = broker.image.topics["t"].topic_id
        elected = PartitionChangeRecord(topic_id, 0, None, None, broker.config.node_id, None)
        await broker.active.change(lambda image: [elected])
        assert broker.image.topics["t"].partitions[0].leader_epoch == 1
        assert values_of(await wire.fetch("t", 0)) == [b"0"]
        faults.errnos.clear()
        await until(lambda: broker.partitions.get("t", 0).leader_epoch == 1)
        assert values_of(await wire.fetch("t", 0, leader_epoch=1)) == RECORDS
        assert (await wire.produce("t", batch(b"next"))).base_offset == len(RECORDS)
        log = broker.partitions.get("t", 0).log
        assert log.end_offset_for_epoch(1) == (1, len(RECORDS) + 1)
        assert log.end_offset_for_epoch(0) == (0, len(RECORDS))


async def test_a_parked_fetch_gets_the_records_that_recovery_adds(data: Path) -> None:
    faults = Faults({"write": errno.ENOSPC}, where="/t-0/")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        assert values_of(await wire.fetch("t", 0)) == [b"0"]
        request = fetch_request([("t", 0, 1)], max_wait_ms=20_000)
        wire.send(request)
        await until(lambda: bool(node.broker.partitions.get("t", 0).watchers))
        faults.errnos.clear()
        answer = await wire.answer(FetchResponse)
        assert values_of(answer.partitions[0], offset=1) == RECORDS[1:]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
async def test_a_partition_that_cannot_be_read_is_opened_when_the_cause_has_passed(
    data: Path, number: int
) -> None:
    faults = Faults({"open": number}, where="t-0/")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        message = await reason(wire)
        assert os.strerror(number) in message
        assert "tries by itself" in message
        assert "delete the topic" not in message
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        faults.errnos.clear()
        await until(lambda: node.broker.partitions.offline("t", 0) is None)
        assert values_of(await wire.fetch("t", 0)) == RECORDS


async def test_a_topic_whose_recovery_is_tried_again_can_be_deleted(data: Path) -> None:
    faults = Faults({"write": errno.ENOSPC}, where="/t-0/")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        assert (await wire.delete("t")).error_code == 0
        assert not (data / "t-0").exists()
        faults.errnos.clear()
        assert (await wire.create("t")).error_code == 0
        assert (await wire.produce("t", batch(b"new"))).base_offset == 0
        assert not node.broker.failed.done()


async def test_a_broker_stops_while_it_tries_again(data: Path) -> None:
    faults = Faults({"write": errno.ENOSPC}, where="/t-0/")
    async with node_on(data, faults):
        pass
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0)) == RECORDS


async def test_an_unreadable_directory_is_not_called_missing(data: Path) -> None:
    faults = Faults({"stat": errno.EACCES}, where="t-0")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        message = await reason(wire)
        assert os.strerror(errno.EACCES) in message
        assert "the broker's user must own the data directory" in message
        assert "missing" not in message
        faults.errnos.clear()
        await until(lambda: node.broker.partitions.offline("t", 0) is None)


async def test_a_directory_without_a_topic_that_cannot_be_looked_at_is_left_alone(
    data: Path,
) -> None:
    (data / "u-0").mkdir()
    faults = Faults({"stat": errno.EACCES}, where="u-0")
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        assert values_of(await wire.fetch("t", 0)) == RECORDS
    assert (data / "u-0").exists()


async def test_partitions_that_were_swapped_on_the_disk_are_not_served_as_each_other(
    data: Path,
) -> None:
    (data / "t-0").rename(data / "aside")
    (data / "t-1").rename(data / "t-0")
    (data / "aside").rename(data / "t-1")
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        for partition in range(2):
            message = await reason(wire, partition)
            assert f"holds another one (topic id {topic_id(data)}, partition {1 - partition})" in (
                message
            )
            assert "delete" not in message
    (data / "t-0").rename(data / "aside")
    (data / "t-1").rename(data / "t-0")
    (data / "aside").rename(data / "t-1")
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0)) == RECORDS


def topic_id(data: Path) -> str:
    identity = read_identity(OsDisk(data), "t-0")
    assert identity is not None
    return identity.topic_id


async def test_an_identity_without_a_number_gets_one(data: Path) -> None:
    wanted = Identity(topic_id(data), 1)
    (data / "t-1" / "partition.json").write_text(json.dumps({"topic_id": wanted.topic_id}))
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
    assert read_identity(OsDisk(data), "t-1") == wanted


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
@pytest.mark.parametrize("name", [FIRST, "00000000000000000021.log", "checkpoint"])
async def test_a_fifo_with_the_name_of_a_file_does_not_hang_the_start(
    data: Path, kind: str, name: str
) -> None:
    path = data / "t-0" / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        assert await reason(wire)


async def test_no_producer_id_is_given_twice_when_older_metadata_comes_back(
    tmp_path: Path,
) -> None:
    data, older = tmp_path / "data", tmp_path / "older"
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        await wire.create("t", partitions=2)
    shutil.copytree(data / "__cluster_metadata-0", older)
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        given = await wire.producer_id()
        assert not (await wire.produce("t", sequenced(*given, 0, b"first"))).error_code
    shutil.rmtree(data / "__cluster_metadata-0")
    shutil.copytree(older, data / "__cluster_metadata-0")
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        again = await wire.producer_id()
        assert again[0] > given[0]
        assert (await wire.produce("t", sequenced(*again, 0, b"second"))).base_offset == 1
        assert values_of(await wire.fetch("t", 0)) == [b"first", b"second"]


async def rolled(data: Path) -> None:
    """A stopped broker, whose `t-0` has three segments at least."""
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"segment.bytes": "1024"})
        for n in range(30):
            await wire.produce("t", batch(b"%d" % n * 40))


async def test_a_stray_segment_behind_the_end_is_set_aside_after_a_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await rolled(tmp_path)
    stray = tmp_path / "t-0" / "00000000000000000777.log"
    content = batch(b"from elsewhere")
    for _ in range(2):
        stray.write_bytes(content)
        caplog.clear()
        async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
            assert (await wire.offset("t", -1)).offset == 30
        [line] = [r for r in caplog.records if "is set aside" in r.getMessage()]
        assert line.levelname == "WARNING"
        assert "00000000000000000777.log.stray" in line.getMessage()
    assert not stray.exists()
    kept = sorted((tmp_path / "t-0").glob("*.stray"))
    assert [path.read_bytes() for path in kept] == [content, content]


@pytest.mark.parametrize("gone", [0, -1])
async def test_a_log_without_its_checkpoint_is_a_warning_with_its_offsets(
    tmp_path: Path, gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    await rolled(tmp_path)
    segments = sorted((tmp_path / "t-0").glob("*.log"))
    assert len(segments) > 2
    segments[gone].unlink()
    (tmp_path / "t-0" / "checkpoint").unlink()
    (tmp_path / "t-0" / "recovery-point").unlink()
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        begin, end = (await wire.offset("t", -2)).offset, (await wire.offset("t", -1)).offset
    assert (begin > 0) == (gone == 0)
    assert (end < 30) == (gone == -1)
    [line] = [r for r in caplog.records if "the checkpoint is missing" in r.getMessage()]
    assert line.levelname == "WARNING"
    assert f"start_offset={begin} end_offset={end}" in line.getMessage()


async def test_a_timestamp_far_from_the_brokers_clock_is_refused(tmp_path: Path) -> None:
    year_2100 = 4_102_444_800_000
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"message.timestamp.before.max.ms": "86400000"})
        for wrong in (year_2100, 1_000):
            refused = await wire.produce("t", batch(b"x", timestamp_ms=wrong))
            assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
            assert "message.timestamp." in (refused.error_message or "")
        assert (await wire.offset("t", -1)).offset == 0
        await wire.alter("t", {"message.timestamp.after.max.ms": str(2**62)})
        assert not (await wire.produce("t", batch(b"x", timestamp_ms=year_2100))).error_code
        await wire.create("stamped", configs={"message.timestamp.type": "LogAppendTime"})
        assert not (await wire.produce("stamped", batch(b"x", timestamp_ms=year_2100))).error_code


async def test_a_jump_of_the_clock_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = SystemClock().wall_ms()
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"segment.bytes": "1024"})
        for n in range(30):
            await wire.produce("t", batch(b"%d" % n * 40, timestamp_ms=now_ms))
        inner = broker.node.broker
        partition = inner.partitions.get("t", 0)
        monkeypatch.setattr(SystemClock, "wall_ms", lambda _: now_ms + 400 * 86_400_000)
        inner.housekeeping.look_after(partition)
        inner.housekeeping.look_after(partition)
        assert partition.log.start_offset == 0
        assert len([r for r in caplog.records if "has jumped forward" in r.getMessage()]) == 1
