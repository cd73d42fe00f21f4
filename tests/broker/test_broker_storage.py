"""A start on a data directory that a crash or a user has changed."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import ClusterRecord, encode_metadata_record
from millrace_protocol.records import encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.disk.os_disk import OsDisk
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.partitions.storage import create_logs
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect, open_files, values_of

METADATA = "__cluster_metadata-0"


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[Wire]:
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        yield wire


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """The directory of a stopped broker: topic `t` with a record in each of two partitions."""
    directory = tmp_path / "data"
    async with serving(directory) as wire:
        await wire.create("t", partitions=2)
        for partition in range(2):
            await wire.produce("t", batch(b"%d" % partition), partition=partition)
    return directory


def directories(data: Path) -> list[str]:
    return sorted(path.name for path in data.iterdir() if path.is_dir())


async def test_a_restart_in_order_reads_nothing(data: Path) -> None:
    async with Broker(data=data) as broker:
        reports = [partition.log.recovery for partition in broker.node.broker.partitions]
        assert len(reports) == 3
        assert all(report.is_clean and not report.scanned_bytes for report in reports)


async def test_the_cluster_keeps_its_identity(data: Path) -> None:
    found = []
    for _ in range(2):
        async with Broker(data=data) as broker:
            found.append(broker.node.broker.image.cluster_id)
    assert found[0] == found[1] is not None


async def test_an_unfinished_creation_is_removed(data: Path) -> None:
    image = ClusterImage()
    for log in create_logs(OsDisk(data), image, "u", "0" * 8, range(2), LogConfig()).values():
        log.discard()
    (data / "u-1" / "partition.json").unlink()
    assert "u-0" in directories(data)
    async with serving(data) as wire:
        assert directories(data) == [METADATA, "t-0", "t-1"]
        assert (await wire.create("u", partitions=2)).error_code == 0
        assert (await wire.produce("u", batch(b"v"), partition=1)).base_offset == 0


async def test_a_directory_with_nothing_in_it_does_not_stand_in_the_way(data: Path) -> None:
    (data / "u-0").mkdir()
    async with serving(data) as wire:
        assert (await wire.create("u")).error_code == 0


async def test_a_partition_without_its_directory_is_offline_and_the_others_are_served(
    data: Path,
) -> None:
    shutil.rmtree(data / "t-0")
    async with serving(data) as wire:
        topic = await wire.topic("t")
        assert [(p.error_code, p.leader_id) for p in topic.partitions] == [
            (ErrorCode.KAFKA_STORAGE_ERROR, -1),
            (0, 0),
        ]
        for result in (
            await wire.produce("t", batch(b"x")),
            await wire.fetch("t", 0),
            await wire.offset("t", -1),
        ):
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "t-0" in (result.error_message or "")
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        assert not (data / "t-0").exists(), "it is not begun anew"


async def test_deleting_a_topic_that_is_offline_makes_room_for_a_new_one(data: Path) -> None:
    shutil.rmtree(data / "t-0")
    async with serving(data) as wire:
        assert (await wire.delete("t")).error_code == 0
        assert directories(data) == [METADATA]
        assert (await wire.create("t")).error_code == 0
        assert (await wire.produce("t", batch(b"new"))).base_offset == 0


@pytest.mark.parametrize("content", [b'{"topic_id": "another"}', b"", b"[]", b"\xff"])
async def test_a_directory_of_another_topic_is_not_served(data: Path, content: bytes) -> None:
    (data / "t-0" / "partition.json").write_bytes(content)
    async with serving(data) as wire:
        assert (await wire.fetch("t", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]


async def test_a_log_that_lost_durable_bytes_is_offline_and_untouched(data: Path) -> None:
    segment = next((data / "t-0").glob("*.log"))
    with segment.open("r+b") as file:
        file.truncate(20)
    async with serving(data) as wire:
        assert not [name for name in open_files() if "/t-0/" in name]
        fetched = await wire.fetch("t", 0)
        assert fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        assert (await wire.widen("t", 3)).error_code == 0
        assert (await wire.alter("t", {"segment.ms": "5"})).error_code == 0
    assert segment.stat().st_size == 20


async def test_a_changed_byte_of_acked_records_before_a_kill_is_offline_and_untouched(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = data.parent / "copy"
    async with serving(data) as wire:
        for n in range(20):
            await wire.produce("t", batch(b"more %d" % n))
        # As a kill leaves it: no checkpoint since the start.
        shutil.copytree(data, copy)
    segment = copy / "t-0" / "00000000000000000000.log"
    sound = segment.read_bytes()
    for position in (len(sound) - 3, len(sound) // 2):
        changed = bytearray(sound)
        changed[position] ^= 1
        segment.write_bytes(changed)
        kept = {path.name: path.read_bytes() for path in (copy / "t-0").iterdir()}
        caplog.clear()
        async with serving(copy) as wire:
            assert (await wire.fetch("t", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            refused = await wire.produce("t", batch(b"next"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        [line] = [r for r in caplog.records if "partition offline" in r.getMessage()]
        assert line.levelname == "ERROR"
        assert "all before offset 21 was durable; nothing was changed" in line.getMessage()
        assert {path.name: path.read_bytes() for path in (copy / "t-0").iterdir()} == kept
    segment.write_bytes(sound)
    async with serving(copy) as wire:
        found = values_of(await wire.fetch("t", 0))
        assert found == [b"0", *(b"more %d" % n for n in range(20))]


async def test_records_that_no_topic_owns_are_left_alone(data: Path) -> None:
    stray = data / "u-0"
    shutil.copytree(data / "t-0", stray)
    (stray / "partition.json").write_text(json.dumps({"topic_id": "unheard-of"}))
    kept = {path.name: path.read_bytes() for path in stray.iterdir()}
    async with serving(data) as wire:
        created = await wire.create("u")
        assert created.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "u-0" in (created.error_message or "")
        assert await wire.topics() == ["t"]
        shutil.move(stray, data.parent / "elsewhere")
        assert (await wire.create("u")).error_code == 0
    found = {path.name: path.read_bytes() for path in (data.parent / "elsewhere").iterdir()}
    assert all(found[name] == kept[name] for name in kept if name.endswith((".log", ".json")))


async def test_a_directory_that_is_no_partition_is_left_alone(data: Path) -> None:
    (data / "lost+found").mkdir()
    (data / "lost+found" / "note").write_text("mine")
    async with serving(data) as wire:
        assert await wire.topics() == ["t"]
    assert (data / "lost+found" / "note").read_text() == "mine"


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_deletion_that_was_cut_short_is_finished(data: Path, is_running: bool) -> None:
    saved = data.parent / "saved"
    shutil.copytree(data / "t-1", saved)
    async with serving(data) as wire:
        await wire.delete("t")
        if is_running:
            shutil.copytree(saved, data / "t-1")
            assert (await wire.create("t", partitions=2)).error_code == 0
            assert (await wire.fetch("t", 0, partition=1)).high_watermark == 0
    if not is_running:
        shutil.copytree(saved, data / "t-1")
        shutil.copytree(saved, data / "t-0.half.deleted")
        (data / "t-0.half.deleted" / "partition.json").unlink()
        async with serving(data):
            assert directories(data) == [METADATA]


async def test_a_long_name_is_deleted_from_the_disk_too(data: Path) -> None:
    async with serving(data) as wire:
        await wire.create("n" * 249, partitions=2)
        await wire.delete("n" * 249)
        assert directories(data) == [METADATA, "t-0", "t-1"]


async def test_data_without_its_metadata_is_refused(data: Path) -> None:
    shutil.rmtree(data / METADATA)
    before = open_files()
    broker = Broker(data=data)
    with pytest.raises(ApiError, match=METADATA) as caught:
        await broker.start()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert open_files() == before
    assert directories(data) == ["t-0", "t-1"]


async def test_metadata_without_its_identity_is_not_begun_anew(data: Path) -> None:
    (data / METADATA / "partition.json").unlink()
    with pytest.raises(ApiError):
        await Broker(data=data).start()
    assert (data / METADATA / "00000000000000000000.log").stat().st_size > 0


async def test_a_first_start_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    PartitionLog.create(disk, METADATA, LogConfig()).discard()
    async with serving(tmp_path) as wire:
        assert (await wire.create("t")).error_code == 0


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(bytes.fromhex("7fff 0000"), id="unknown type"),
        pytest.param(bytes.fromhex("0001 7fff"), id="unknown version"),
        pytest.param(
            encode_metadata_record(ClusterRecord(uuid.UUID(int=1), 99)), id="feature level"
        ),
    ],
)
async def test_metadata_of_a_newer_broker_is_not_guessed_at(data: Path, value: bytes) -> None:
    log = PartitionLog.open(OsDisk(data), METADATA, LogConfig(), now_ms=1)
    made = encode_batch([value], timestamps_ms=1)
    log.append(memoryview(made), read_header(made), now_ms=1)
    log.close()
    before = open_files()
    with pytest.raises(UnreadableMetadata, match="newer millrace"):
        await Broker(data=data).start()
    assert open_files() == before


async def test_a_kill_in_the_midst_of_appends_keeps_every_acked_record(data: Path) -> None:
    copy = data.parent / "copy"
    async with serving(data) as wire:
        for n in range(20):
            await wire.produce("t", batch(b"more %d" % n))
        shutil.copytree(data, copy)
    with (copy / "t-0" / "00000000000000000000.log").open("ab") as file:
        file.write(batch(b"torn")[:-3])
    async with serving(copy) as wire:
        fetched = await wire.fetch("t", 0)
        assert values_of(fetched) == [b"0", *(b"more %d" % n for n in range(20))]
        assert fetched.high_watermark == 21
        assert (await wire.produce("t", batch(b"next"))).base_offset == 21
