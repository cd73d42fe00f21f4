"""A broker with records and a group, and consoles in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millrace import Admin, Producer
from millrace_server.testing import Broker
from tests.console.running_console import RunningConsole, running_console


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with the topic `clicks` of two partitions, six records, and the group `readers`."""
    async with Broker(data=tmp_path / "data") as running:
        async with Admin(running.servers) as admin:
            await admin.create_topic("clicks", partitions=2)
            async with Producer(running.servers) as producer:
                for number in range(3):
                    headers = (("source", b"test"),)
                    value = b'{"n": %d}' % number
                    await producer.send("clicks", value, key=b"k", partition=0, headers=headers)
                    await producer.send("clicks", b"plain %d" % number, partition=1)
            outcomes = await admin.alter_group_offsets("readers", {("clicks", 0): 1})
            assert all(each.error is None for each in outcomes.values())
        yield running


@pytest.fixture
async def console(broker: Broker) -> AsyncIterator[RunningConsole]:
    """A console that changes nothing."""
    async with running_console(broker.servers) as running:
        yield running


@pytest.fixture
async def changing_console(broker: Broker) -> AsyncIterator[RunningConsole]:
    """A console that may change the cluster."""
    async with running_console(broker.servers, allow_changes=True) as running:
        yield running
