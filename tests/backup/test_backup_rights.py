"""Backups by a user who may not see every topic: what is missing is told, and never lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millrace import Admin, Producer
from millrace.acls import Acl, AclFilter
from millrace.errors import NotAuthorized
from millrace_cli.backup.directory import BackupDirectory
from millrace_cli.exits import CommandError
from millrace_server.testing import Broker
from tests.backup.restored import backed_up, ends, file_bytes

ADA = "User:ada"
LOGIN: dict[str, Any] = {"username": "ada", "password": "pencil"}
SECRET = AclFilter(resource_name="secret")
SEES_SECRET = Acl(ADA, "read", "topic", "secret")
CONFIGS = Acl(ADA, "describe_configs", "topic", "*")
HIDDEN = f"secret: {ADA} has no right DESCRIBE on topic 'secret'"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """With two topics, and a user who may read all topics but one."""
    listen, super_users = "127.0.0.1:0,sasl://127.0.0.1:0", "User:ANONYMOUS"
    async with Broker(listen=listen, super_users=super_users) as running:
        async with Admin(running.servers) as admin, Producer(running.servers) as producer:
            await admin.set_password("ada", "pencil")
            for topic in ("orders", "secret"):
                await admin.create_topic(topic)
                await producer.send(topic, b"v")
            reads = [Acl(ADA, "read", "topic", each) for each in ("orders", "__consumer_offsets")]
            await admin.create_acls([*reads, CONFIGS])
        yield running


@pytest.fixture
async def operator(broker: Broker) -> AsyncIterator[Admin]:
    """A super user."""
    async with Admin(broker.servers) as admin:
        yield admin


async def test_topics_that_a_backup_cannot_see_are_told_where_the_broker_tells(
    broker: Broker, operator: Admin, tmp_path: Path
) -> None:
    servers = broker.servers_of("sasl")
    result = await backed_up(tmp_path / "first", servers, settings=LOGIN)
    assert ends(result.backup) == {"orders-0": 1}
    assert result.hidden_topics == ()
    await operator.create_acls([Acl(ADA, "describe", "cluster", "kafka-cluster")])
    result = await backed_up(tmp_path / "second", servers, settings=LOGIN)
    assert [str(each) for each in result.hidden_topics] == [HIDDEN]
    await operator.create_acls([SEES_SECRET])
    result = await backed_up(tmp_path / "second", servers, settings=LOGIN)
    assert ends(result.backup) == {"orders-0": 1, "secret-0": 1}
    assert result.hidden_topics == ()


async def test_a_backup_keeps_a_topic_that_may_not_be_seen_any_more(
    broker: Broker, operator: Admin, tmp_path: Path
) -> None:
    servers = broker.servers_of("sasl")
    await operator.create_acls([SEES_SECRET])
    await backed_up(tmp_path, servers, settings=LOGIN)
    files = file_bytes(tmp_path)
    await operator.delete_acls([SECRET])
    with pytest.raises(CommandError) as refused:
        await backed_up(tmp_path, servers, settings=LOGIN)
    assert str(refused.value).startswith(f"{HIDDEN}. The backup has this topic and would lose it")
    assert file_bytes(tmp_path) == files
    # A topic that may be seen, and not be read, is an error as well.
    await operator.create_acls([Acl(ADA, "describe", "topic", "secret")])
    async with Producer(broker.servers) as producer:
        await producer.send("secret", b"w")
    with pytest.raises(NotAuthorized, match="no right READ on topic 'secret'"):
        await backed_up(tmp_path, servers, settings=LOGIN)
    assert ends(BackupDirectory(tmp_path).read()) == {"orders-0": 1, "secret-0": 1}
    await operator.delete_acls([SECRET])
    await operator.delete_topic("secret")
    await operator.create_acls([Acl(ADA, "describe", "topic", "*")])
    result = await backed_up(tmp_path, servers, settings=LOGIN)
    assert ends(result.backup) == {"orders-0": 1}
