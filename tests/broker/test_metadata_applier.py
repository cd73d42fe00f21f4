"""The applier: after any crash or refusal of the disk, partitions are what the metadata says."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.broker import Broker
from millrace_server.controller.applier import MetadataApplier
from millrace_server.metadata.delta import Delta
from millrace_server.partitions import opening
from millrace_server.partitions.partition_table import OpenedAgainLater
from millrace_server.partitions.role import Role
from millrace_server.services.request_context import THIS_BROKER
from millrace_simulation.disk import FaultyDisk
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import batch, connect, open_files, until
from tests.crash.machine_in_memory import broker_on


class Crash(Exception):
    """The process ends here."""


async def _crash(self: MetadataApplier, delta: Delta) -> None:
    raise Crash


async def crash_before_applying(disk: FaultyDisk, change: str) -> None:
    """A broker that dies between the commit of a change and its application."""
    broker = broker_on(disk)
    await broker.start()
    await broker.topics.create(THIS_BROKER, "t")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataApplier, "apply", _crash)
        with pytest.raises(Crash):
            if change == "create":
                await broker.topics.create(THIS_BROKER, "u", partitions=2)
            elif change == "widen":
                await broker.topics.add_partitions(THIS_BROKER, "t", 2)
            elif change == "configure":
                await broker.topics.change_config(THIS_BROKER, "t", {"segment.ms": "5"})
            else:
                await broker.topics.delete(THIS_BROKER, "t")


def directories(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.list_directory("") if name[-1].isdigit() and name[0] != "_"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("create", ["t-0", "u-0", "u-1"]),
        ("widen", ["t-0", "t-1"]),
        ("configure", ["t-0"]),
        ("delete", []),
    ],
)
async def test_a_start_applies_records_committed_before_a_crash(
    change: str, expected: list[str]
) -> None:
    disk = FaultyDisk()
    await crash_before_applying(disk, change)
    after = disk.after_kill()
    for _ in range(2):
        broker = broker_on(after)
        await broker.start()
        assert directories(after) == expected
        for topic in broker.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                assert broker.partitions.offline(topic.name, number) is None
                assert partition.is_created(broker.config.node_id)
        if change == "configure":
            assert broker.partitions.get("t", 0).log.config.segment_ms == 5
        await broker.stop()
    assert after.open_files == []


async def test_a_replica_that_was_created_and_is_missing_is_lost_and_never_begun_anew() -> None:
    disk = FaultyDisk()
    broker = broker_on(disk)
    await broker.start()
    await broker.topics.create(THIS_BROKER, "t", partitions=2)
    await broker.stop()
    disk.remove_directory("t-0")
    broker = broker_on(disk)
    await broker.start()
    refused = broker.partitions.offline("t", 0)
    assert refused is not None and refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.partitions.offline("t", 1) is None
    assert directories(disk) == ["t-1"]
    await broker.stop()


async def test_a_partition_takes_records_only_once_its_directory_is_committed() -> None:
    disk = FaultyDisk()
    broker = broker_on(disk)
    await broker.start()
    seen: list[bool] = []
    put_in_service = opening.Opening.put_in_service

    async def noted(self: opening.Opening, topic: object, number: int, *rest: object) -> None:
        known = broker.image.topics["t"].partitions[number]
        seen.append(known.is_created(broker.config.node_id))
        await put_in_service(self, topic, number, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening.Opening, "put_in_service", noted)
        await broker.topics.create(THIS_BROKER, "t", partitions=3)
    assert seen == [True, True, True]
    await broker.stop()


async def test_new_partitions_that_find_no_space_are_opened_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "RETRY_MIN_MS", 10)
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.errnos["write"], faults.where = errno.ENOSPC, "/t-1/"
        widened = await wire.widen("t", 3)
        assert widened.error_code == ErrorCode.DISK_FULL
        assert "has 3 partitions, and the new ones are offline" in (widened.error_message or "")
        assert (await wire.produce("t", batch(b"v"))).error_code == 0
        waiting = node.broker.partitions.offline("t", 2)
        assert isinstance(waiting, OpenedAgainLater)
        assert (await wire.create("other")).error_code == 0, "the metadata goes on"
        faults.errnos.clear()
        await until(lambda: node.broker.partitions.offline("t", 1) is None)
        await until(lambda: node.broker.partitions.offline("t", 2) is None)
        assert (await wire.produce("t", batch(b"v"), partition=2)).base_offset == 0


async def test_a_topic_that_can_be_neither_applied_nor_taken_back_comes_with_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "RETRY_MIN_MS", 10)
    faults = Faults()
    apply = MetadataApplier.apply

    async def fill_the_disk(self: MetadataApplier, delta: Delta) -> object:
        faults.errnos["write"] = errno.ENOSPC
        return await apply(self, delta)

    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        monkeypatch.setattr(MetadataApplier, "apply", fill_the_disk)
        assert (await wire.create("t")).error_code == ErrorCode.DISK_FULL
        monkeypatch.setattr(MetadataApplier, "apply", apply)
        (partition,) = (await wire.topic("t")).partitions
        assert (partition.leader_id, partition.isr) == (-1, ())
        faults.errnos.clear()
        await until(lambda: node.broker.partitions.offline("t", 0) is None)
        assert (await wire.produce("t", batch(b"v"))).base_offset == 0


async def test_a_start_on_a_full_disk_keeps_the_registration_and_serves(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"v"))
    before = open_files()
    faults.errnos["write"], faults.where = errno.ENOSPC, "__cluster_metadata"
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        assert (await wire.fetch("t", 0)).high_watermark == 1
        (advertised,) = (await wire.ask(MetadataRequest(()), MetadataResponse)).brokers
        assert advertised.port == node.address[1]
        faults.errnos.clear()
    assert open_files() == before


async def test_each_start_registers_the_broker_anew_with_a_higher_epoch() -> None:
    disk = FaultyDisk()
    found = []
    for seed in range(3):
        broker: Broker = broker_on(disk, seed=seed)
        await broker.start()
        found.append(broker.image.brokers[broker.config.node_id])
        await broker.stop()
    assert len({each.incarnation_id for each in found}) == 3
    assert found[0].epoch < found[1].epoch < found[2].epoch
    assert len({each.directory_ids for each in found}) == 1
    assert not any(each.is_fenced for each in found)


@pytest.mark.parametrize(("leader", "role"), [(0, Role.LEADER), (1, Role.FOLLOWER)])
@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_partition_leads_or_follows_in_the_epoch_that_is_committed(
    leader: int, role: Role, is_applied: bool
) -> None:
    disk = FaultyDisk()
    broker = broker_on(disk)
    await broker.start()
    topic = await broker.topics.create(THIS_BROKER, "t")
    change = PartitionChangeRecord(topic.topic_id, 0, None, None, leader, None)
    with pytest.MonkeyPatch.context() as patch:
        if not is_applied:
            patch.setattr(MetadataApplier, "apply", _crash)
        with suppress(Crash):
            await broker.active.change(lambda image: [change])
    if is_applied:
        (partition,) = broker.partitions.of_topic("t")
        assert (partition.leadership.role, partition.leader_epoch) == (role, 1)
        await broker.stop()
    after = disk if is_applied else disk.after_kill()
    again = broker_on(after, seed=2)
    await again.start()
    (partition,) = again.partitions.of_topic("t")
    assert (partition.leadership.role, partition.leader_epoch) == (role, 1)
    await again.stop()
