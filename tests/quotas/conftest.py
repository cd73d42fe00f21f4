"""A broker with a topic `t`, and quotas for its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from millrace import Admin
from millrace.quotas import Quota, QuotaEntity
from millrace_server.testing import Broker


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        async with Admin(running.servers) as admin:
            await admin.create_topic("t")
        yield running


async def set_quota(
    broker: Broker, entity: QuotaEntity, values: Mapping[Quota, float | None]
) -> None:
    """Sets quotas of an entity; None removes one."""
    async with Admin(broker.servers) as admin:
        (await admin.alter_quotas({entity: values}))[entity].unwrap()
