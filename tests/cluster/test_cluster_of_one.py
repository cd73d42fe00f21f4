"""A data directory that a single broker wrote before brokers had replicas.

`data/single_broker.tar.xz` is such a directory: topic `flights` with 3 partitions and the values 0
to 29 in turn, all read and committed by group `readers`, and a topic that was deleted again.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from millrace import Admin, Consumer, Producer
from millrace_server.testing import Broker
from tests.cluster.records import TOPIC, numbers, read_all, send

ARCHIVE = Path(__file__).parent / "data" / "single_broker.tar.xz"


@pytest.fixture
def old_data(tmp_path: Path) -> Path:
    """The directory, as the older broker left it."""
    with tarfile.open(ARCHIVE) as archive:
        # A keyword argument for it came with Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path / "data")
    return tmp_path / "data"


async def test_a_directory_of_a_single_broker_starts_as_a_cluster_of_one(old_data: Path) -> None:
    for start in range(2):
        async with Broker(data=old_data) as broker:
            async with Admin(broker.servers) as admin:
                assert await admin.list_topics() == [TOPIC]
            for partition, records in (await read_all(broker.servers)).items():
                assert [value for _, value in records][:10] == numbers(0, 30)[partition::3]
            async with Consumer(broker.servers, TOPIC, group="readers") as consumer:
                committed = await consumer.committed(*((TOPIC, number) for number in range(3)))
            assert [each and each.offset for each in committed.values()] == [10, 10, 10]
            async with Producer(broker.servers) as producer:
                assert await send(producer, [b"new"]) == [10 + start]
