"""A broker with authorization, and entries of access control for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from millrace import Admin
from millrace_protocol.acls import Operation, PatternType, Permission, ResourceType
from millrace_server.metadata.acls import AclEntry, AclFilter
from millrace_server.services.request_context import THIS_BROKER
from millrace_server.testing import Broker
from tests.sasl.conftest import PASSWORD, USER
from tests.tls.conftest import Certificates
from tests.tls.conftest import certificates as certificates

LISTEN = "127.0.0.1:0, sasl://127.0.0.1:0, tls://127.0.0.1:0"
ROOT = "root"
"""A super user."""
EVERYTHING = [
    AclEntry(kind, PatternType.LITERAL, "*", "User:ANONYMOUS", "*", Operation.ALL, Permission.ALLOW)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
]
"""To peers of the listener without authentication."""


@pytest.fixture
async def broker(certificates: Certificates) -> AsyncIterator[Broker]:
    """With two users, `USER` and `ROOT`, and without entries."""
    async with Broker(
        listen=LISTEN,
        tls_certificate=certificates.broker,
        tls_client_ca=certificates.ca,
        super_users=f"User:{ROOT};User:operator",
    ) as running:
        await set_acls(running, EVERYTHING)
        async with Admin(running.servers) as admin:
            for name in (USER, ROOT):
                await admin.set_password(name, PASSWORD)
        await set_acls(running, [])
        yield running


async def set_acls(broker: Broker, entries: Sequence[AclEntry]) -> None:
    """Puts entries in the place of all that there are."""
    service = broker.node.broker.services.acls
    await service.delete(THIS_BROKER, [AclFilter()])
    assert not any(await service.create(THIS_BROKER, entries))


def allow(
    operation: str, kind: str, name: str, principal: str = f"User:{USER}", *, deny: bool = False
) -> AclEntry:
    """An entry for a resource of that name."""
    return AclEntry(
        ResourceType[kind.upper()],
        PatternType.LITERAL,
        name,
        principal,
        "*",
        Operation[operation],
        Permission.DENY if deny else Permission.ALLOW,
    )
