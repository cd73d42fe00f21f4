"""`millrace backup` and `millrace restore`: their results, and how they refuse."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from millrace import Admin, Consumer, Producer
from millrace_cli.backup import directory as backup_directory
from millrace_cli.backup.manifest import MANIFEST_NAME, VERSION
from millrace_cli.exits import Exit
from millrace_server import restored_directory
from millrace_server.disk.os_disk import DiskError
from millrace_server.testing import Broker
from tests.backup.restored import backed_up, ends, file_bytes, restored
from tests.cli.json_shapes import check_shape, documented
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

TOPIC = "orders"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker with 20 records of a topic with settings of its own."""
    async with Broker() as running:
        async with Admin(running.servers) as admin:
            configs = {"retention.ms": -1, "min.insync.replicas": 1}
            await admin.create_topic(TOPIC, partitions=2, configs=configs)
        async with Producer(running.servers) as producer:
            for number in range(20):
                await producer.send(TOPIC, b"%d" % number, partition=number % 2)
        yield running


@pytest.fixture
def closed_port() -> Iterator[str]:
    """HOST:PORT where no server listens."""
    with socket.socket() as probe:
        # Bound and not listening: connections are refused, and no other process can take the port.
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
async def backup(broker: Broker, tmp_path: Path) -> Path:
    """A backup of the broker."""
    await backed_up(tmp_path / "backup", broker.servers)
    return tmp_path / "backup"


Done = subprocess.CompletedProcess[str]


async def millrace(*arguments: str | Path, servers: str = "") -> Done:
    """Runs the command line as a process."""

    def work() -> Done:
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_TIMEOUT_S,
            env={**os.environ, "MILLRACE_SERVERS": servers},
        )

    return await asyncio.to_thread(work)


async def values(servers: str, count: int) -> list[int]:
    """The first records of all partitions, sorted."""
    async with Consumer(servers, TOPIC, start="earliest") as consumer:
        return sorted([int((await consumer.getone()).value or b"") for _ in range(count)])


async def test_the_commands_print_the_documented_json(broker: Broker, tmp_path: Path) -> None:
    root, data = tmp_path / "backup", tmp_path / "data"
    for words in (
        ("backup", "create", root),
        ("backup", "verify", root),
        ("restore", root, "--data", data),
    ):
        done = await millrace(*words, "--json", servers=broker.servers)
        assert done.returncode == 0, done.stderr
        name = tuple(str(word) for word in words[: 2 if words[0] == "backup" else 1])
        check_shape(documented()[name], json.loads(done.stdout))
    async with Broker(data=data) as copy:
        assert await values(copy.servers, 20) == list(range(20))
        async with Admin(copy.servers) as admin, Admin(broker.servers) as old:
            assert await admin.describe_configs(TOPIC) == await old.describe_configs(TOPIC)
            found, wanted = await admin.describe_topic(TOPIC), await old.describe_topic(TOPIC)
            assert found.topic_id == wanted.topic_id


def changed(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [3, 8, 11, 12, 70, -1])
async def test_a_changed_byte_is_found_and_nothing_is_restored(
    backup: Path, tmp_path: Path, place: int
) -> None:
    path = max((backup / "topics").rglob("*.log"))
    changed(path, place)
    data = tmp_path / "data"
    for words in (("backup", "verify", backup), ("restore", backup, "--data", data)):
        done = await millrace(*words)
        assert done.returncode == Exit.INPUT, done.stderr
        assert "is damaged" in done.stderr
    assert not data.exists()


@pytest.mark.parametrize("size", [0, 20, 100])
async def test_a_torn_file_is_found(backup: Path, size: int) -> None:
    path = max((backup / "topics").rglob("*.log"))
    os.truncate(path, size)
    done = await millrace("backup", "verify", backup)
    assert done.returncode == Exit.INPUT and f"{path} is damaged" in done.stderr
    path.unlink()
    done = await millrace("backup", "verify", backup)
    assert done.returncode == Exit.INPUT and "it is missing" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b'"version":1', b'"version":%d' % (VERSION + 1), "use a newer one"),
        (b'"start_offset":0', b'"start_offset":1', "its checksum does not fit"),
        (b"millrace backup", b"another program", "not the manifest of a backup"),
        (b"}\n", b"", "not the manifest of a backup"),
    ],
)
async def test_another_manifest_is_refused(
    backup: Path, tmp_path: Path, broker: Broker, old: bytes, new: bytes, sentence: str
) -> None:
    manifest = backup / MANIFEST_NAME
    manifest.write_bytes(manifest.read_bytes().replace(old, new))
    before = file_bytes(backup)
    for words in (
        ("backup", "verify", backup),
        ("restore", backup, "--data", tmp_path / "data"),
        ("backup", "create", backup),
    ):
        done = await millrace(*words, servers=broker.servers)
        assert (done.returncode, done.stdout) == (Exit.INPUT, "")
        assert sentence in done.stderr
    assert not (tmp_path / "data").exists()
    assert file_bytes(backup) == before


async def test_other_directories_are_left_alone(
    backup: Path, tmp_path: Path, broker: Broker
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("mine")
    done = await millrace("restore", backup, "--data", taken)
    assert done.returncode == Exit.REFUSED and "is not empty" in done.stderr
    done = await millrace("backup", "create", taken, servers=broker.servers)
    assert done.returncode == Exit.INPUT and "has file and no manifest.json" in done.stderr
    done = await millrace("restore", taken, "--data", tmp_path / "data")
    assert done.returncode == Exit.INPUT and "it is not a backup" in done.stderr
    assert (taken / "file").read_text() == "mine"


async def test_a_full_disk_leaves_backup_and_target_as_they_were(
    backup: Path, tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*arguments: object, **keywords: object) -> None:
        raise DiskError("write", "backup", full)

    before, manifest = file_bytes(backup), (backup / MANIFEST_NAME).read_bytes()
    async with Producer(broker.servers) as producer:
        await producer.send(TOPIC, b"20", partition=0)
    with monkeypatch.context() as patch:
        patch.setattr(backup_directory.BackupDirectory, "replace", refuse)
        with pytest.raises(DiskError):
            await backed_up(backup, broker.servers)
    assert (file_bytes(backup), (backup / MANIFEST_NAME).read_bytes()) == (before, manifest)
    with monkeypatch.context() as patch:
        patch.setattr(restored_directory.DirectoryWriter, "finish", refuse)
        with pytest.raises(DiskError):
            await restored(backup, tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_a_half_restored_directory_starts_no_broker(backup: Path, tmp_path: Path) -> None:
    # As after kill -9: the last file is not there, and nothing was removed.
    await restored(backup, tmp_path / "data")
    (tmp_path / "data" / "__cluster_metadata-0" / "partition.json").unlink()
    with pytest.raises(Exception, match="restore that directory"):
        async with Broker(data=tmp_path / "data"):
            pass


async def test_one_run_at_a_time(backup: Path, broker: Broker) -> None:
    with backup_directory.BackupDirectory(backup).locked():
        done = await millrace("backup", "create", backup, servers=broker.servers)
    assert done.returncode == Exit.LOCKED and "is in use" in done.stderr


async def test_no_broker_is_exit_code_69(tmp_path: Path, closed_port: str) -> None:
    words = ("backup", "create", tmp_path / "backup", "-X", "request_timeout_ms=1000")
    done = await millrace(*words, servers=closed_port)
    assert done.returncode == Exit.UNAVAILABLE


async def test_what_a_killed_run_left_is_removed(backup: Path, broker: Broker) -> None:
    before = file_bytes(backup)
    path = max((backup / "topics").rglob("*.log"))
    shutil.copy(path, path.with_name(f"{9:020d}.2.log"))
    await backed_up(backup, broker.servers)
    assert file_bytes(backup) == before


async def test_deleted_records_and_topics_leave_the_backup(backup: Path, broker: Broker) -> None:
    async with Admin(broker.servers) as admin:
        await admin.delete_records({(TOPIC, 0): 10})
        second = (await backed_up(backup, broker.servers)).backup
        (topic,) = second.topics
        assert (topic.partitions[0].start_offset, topic.partitions[0].files) == (10, ())
        await admin.delete_topic(TOPIC)
        await admin.create_topic(TOPIC, partitions=1)
    async with Producer(broker.servers) as producer:
        await producer.send(TOPIC, b"another")
    third = (await backed_up(backup, broker.servers)).backup
    assert ends(third) == {f"{TOPIC}-0": 1}
    assert len(file_bytes(backup)) == 1


async def test_a_log_that_is_another_one_is_copied_again(
    backup: Path, broker: Broker, tmp_path: Path
) -> None:
    """As after an unclean election: the same topic, and other records from an offset on."""
    shutil.copytree(backup, tmp_path / "older")
    async with Producer(broker.servers) as producer:
        await producer.send(TOPIC, b"lost", partition=0)
    await backed_up(backup, broker.servers)
    await restored(tmp_path / "older", tmp_path / "data")
    async with Broker(data=tmp_path / "data") as other:
        async with Producer(other.servers) as producer:
            for number in range(20, 23):
                await producer.send(TOPIC, b"%d" % number, partition=0)
        again = await backed_up(backup, other.servers)
    assert again.copied_files == 1
    await restored(backup, tmp_path / "again")
    async with Broker(data=tmp_path / "again") as copy:
        assert await values(copy.servers, 23) == list(range(23))


async def test_a_start_within_a_batch_and_an_empty_log_are_restored(
    broker: Broker, tmp_path: Path
) -> None:
    async with Producer(broker.servers, linger_ms=1_000) as producer:
        for number in range(20, 30):
            producer.send(TOPIC, b"%d" % number, partition=0)
    async with Admin(broker.servers) as admin:
        await admin.delete_records({(TOPIC, 0): 15, (TOPIC, 1): 10})
    found = (await backed_up(tmp_path / "backup", broker.servers)).backup
    await restored(tmp_path / "backup", tmp_path / "data")
    async with Broker(data=tmp_path / "data") as copy:
        async with Admin(copy.servers) as admin:
            for name, offsets in (("earliest", [15, 10]), ("latest", [20, 10])):
                answers = await admin.list_offsets({(TOPIC, 0): name, (TOPIC, 1): name})
                assert [each.offset for each in answers.values()] == offsets
        assert await values(copy.servers, 5) == list(range(25, 30))
    assert ends(found) == {f"{TOPIC}-0": 20, f"{TOPIC}-1": 10}


async def test_settings_that_one_broker_cannot_have_are_told(
    broker: Broker, tmp_path: Path
) -> None:
    async with Admin(broker.servers) as admin:
        await admin.alter_configs(TOPIC, {"retention.ms": 1_000_000})
    await backed_up(tmp_path / "backup", broker.servers)
    flags = ("-c", "min.insync.replicas=2", "-c", "retention.ms=-1")
    done = await millrace("restore", tmp_path / "backup", "--data", tmp_path / "data", *flags)
    assert done.returncode == 0 and "min.insync.replicas was 2" in done.stderr
    async with Broker(data=tmp_path / "data") as copy, Admin(copy.servers) as admin:
        configs = await admin.describe_configs(TOPIC)
        assert configs["retention.ms"].value == "-1"
        assert configs["min.insync.replicas"].value == "1"
        assert await values(copy.servers, 20) == list(range(20))


async def test_an_unknown_setting_restores_nothing(backup: Path, tmp_path: Path) -> None:
    done = await millrace("restore", backup, "--data", tmp_path / "data", "-c", "no.such=1")
    assert done.returncode == Exit.REFUSED and "There is no topic setting" in done.stderr
    assert not (tmp_path / "data").exists()


async def test_a_producer_id_is_not_given_twice(backup: Path, tmp_path: Path) -> None:
    """A new producer with the id of an old one would have its first records taken for repeats."""
    await restored(backup, tmp_path / "data")
    async with Broker(data=tmp_path / "data") as copy:
        for number in range(3):
            async with Producer(copy.servers) as producer:
                receipt = await producer.send(TOPIC, b"new", partition=0)
            assert receipt.offset == 10 + number
