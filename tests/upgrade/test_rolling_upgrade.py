"""A cluster of the previous commit becomes one of this checkout, broker by broker, under load.

`pytest tests/upgrade --upgrade-from COMMIT` begins with another one.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from benchmarks.checkout import ROOT, checkout_at
from millrace import Admin, Consumer, Producer
from millrace_server.testing import ClusterProcesses
from tests.dependencies import SOURCE
from tests.history.checker import check
from tests.history.operations import Acked, History, Sent
from tests.history.recorded_clients import RecordedSends, read_all

TOPIC, GROUP, PARTITIONS = "numbers", "readers", 3
PREVIOUS = "HEAD~1"


@pytest.fixture
def previous(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """PYTHONPATH of the sources that the cluster begins with."""
    commit = request.config.getoption("--upgrade-from", default=None) or PREVIOUS
    archive = subprocess.run(
        ["git", "archive", commit, "pyproject.toml", *SOURCE], cwd=ROOT, capture_output=True
    )
    if archive.returncode:
        pytest.skip(f"needs the commit {commit} in git: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        # A keyword argument for it came with Python 3.11.4.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(tmp_path / "previous")
    return checkout_at(tmp_path / "previous").environment["PYTHONPATH"]


async def commit_offsets(servers: str) -> int:
    """Reads some records in a group and commits; returns the sum of the committed offsets."""
    async with Consumer(servers, TOPIC, group=GROUP, auto_commit=False) as consumer:
        read = 0
        while read < 100:
            read += len(await consumer.getmany())
        await consumer.commit()
    async with Admin(servers) as admin:
        return sum(each.offset for each in (await admin.list_group_offsets(GROUP)).values())


async def test_a_cluster_is_upgraded_broker_by_broker_under_load(
    previous: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History()
    monkeypatch.setenv("PYTHONPATH", previous)
    async with ClusterProcesses(3) as cluster:
        # Brokers that start from here on are of this checkout.
        monkeypatch.undo()
        async with Admin(cluster.servers) as admin:
            configs = {"min.insync.replicas": 2, "segment.bytes": 1 << 16}
            await admin.create_topic(
                TOPIC, partitions=PARTITIONS, replication_factor=3, configs=configs
            )
            before = await admin.describe_configs(TOPIC)
        async with Producer(cluster.servers) as producer:
            sends = RecordedSends(producer, history, TOPIC, PARTITIONS, pause_s=0.01)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sends.send_until_told())
                committed = await commit_offsets(cluster.servers)
                for broker_id in (1, 2, 3):
                    await cluster.restart(broker_id)
                    await cluster.wait_until_in_sync()
                    await sends.acked_everywhere()
                assert await commit_offsets(cluster.servers) >= committed + 100
                sends.stop()
        await read_all(cluster.servers, TOPIC, history)
        async with Admin(cluster.servers) as admin:
            assert await admin.describe_configs(TOPIC) == before
    report = check(history)
    assert report.is_valid, str(report)
    counts = [sum(isinstance(each, kind) for each in history.operations) for kind in (Sent, Acked)]
    assert counts == [sends.sent, sends.sent], "a send was not acked"
