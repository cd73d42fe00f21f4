"""A broker with a topic `t` of two partitions, and a connection that speaks Kafka's protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace import Admin
from millrace_server.testing import Broker
from tests.kafka.kafka_wire import KafkaWire, connect_kafka


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        async with Admin(running.servers) as admin:
            await admin.create_topic("t", partitions=2)
        yield running


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[KafkaWire]:
    async with connect_kafka(broker.port) as connection:
        yield connection
