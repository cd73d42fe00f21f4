"""What the clients make of rights: errors at once, and entries as an operator sees them."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, sync
from millrace.acls import Acl, AclFilter
from millrace.errors import AuthorizationDisabled, ConfigError, NotAuthorized
from millrace.events import EventKind
from millrace.records import Record
from millrace_protocol.errors import ErrorCode
from millrace_server.testing import Broker
from tests.access.conftest import EVERYTHING, ROOT, allow, set_acls
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.sasl.conftest import PASSWORD, USER

READ = Acl(f"User:{USER}", "read", "topic", "t")


USER_OPTIONS: dict[str, Any] = {"username": USER, "password": PASSWORD}


def as_user(broker: Broker, name: str = USER) -> dict[str, Any]:
    """Arguments of a client."""
    return {"servers": broker.servers_of("sasl"), "username": name, "password": PASSWORD}


@pytest.fixture
async def topic(broker: Broker) -> str:
    """A topic with a record, for which there are no rights."""
    await set_acls(broker, EVERYTHING)
    async with Admin(broker.servers) as admin:
        await admin.create_topic("t")
    async with Producer(broker.servers) as producer:
        await producer.send("t", b"v")
    await set_acls(broker, [])
    return "t"


async def test_a_producer_is_refused_at_once_and_goes_on_with_its_other_topics(
    broker: Broker, topic: str
) -> None:
    async with asyncio.timeout(HANG_TIMEOUT_S), Producer(**as_user(broker)) as producer:
        events = producer.events()
        with pytest.raises(NotAuthorized, match="no right DESCRIBE on topic 't'"):
            await producer.send(topic, b"v")
        await set_acls(broker, [allow("DESCRIBE", "topic", topic)])
        with pytest.raises(NotAuthorized, match="; WRITE on any topic is enough") as refused:
            await producer.send(topic, b"v")
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for offset in (1, 2):
            await set_acls(broker, [allow("WRITE", "topic", topic)])
            assert (await producer.send(topic, b"v")).offset == offset
            await set_acls(broker, [])
            with pytest.raises(NotAuthorized, match="no right WRITE on topic 't'"):
                await producer.send(topic, b"v")
    assert EventKind.RETRYING not in [each.kind async for each in events]


async def test_a_topic_that_is_denied_stops_no_other_topic(broker: Broker, topic: str) -> None:
    await set_acls(broker, EVERYTHING)
    async with Admin(broker.servers) as admin:
        await admin.create_topic("other")
    both = [allow("WRITE", "topic", topic), allow("WRITE", "topic", "other")]
    await set_acls(broker, both)
    async with asyncio.timeout(HANG_TIMEOUT_S), Producer(**as_user(broker)) as producer:
        await producer.send(topic, b"v")
        await set_acls(broker, both[1:])
        denied = [producer.send(topic, b"v") for _ in range(20)]
        allowed = [producer.send("other", b"v") for _ in range(20)]
        assert {type(each) for each in await asyncio.gather(*denied, return_exceptions=True)} == {
            NotAuthorized
        }
        assert [each.offset for each in await asyncio.gather(*allowed)] == [*range(20)]
        await set_acls(broker, both)
        assert (await producer.send(topic, b"v")).offset == 2


async def test_a_consumer_raises_what_it_may_not_read(broker: Broker, topic: str) -> None:
    servers = broker.servers_of("sasl")
    async with asyncio.timeout(HANG_TIMEOUT_S):
        with pytest.raises(NotAuthorized, match="no right DESCRIBE on topic 't'"):
            await Consumer(servers, topic, **USER_OPTIONS).start()
        await set_acls(broker, [allow("READ", "topic", topic)])
        async with Consumer(servers, topic, start="earliest", **USER_OPTIONS) as consumer:
            assert [each.value for each in await consumer.getmany(1)] == [b"v"]
            await set_acls(broker, [])
            with pytest.raises(NotAuthorized, match="no right READ on topic 't'"):
                await consumer.getmany(1)


async def test_a_member_of_a_group_raises_that_it_may_not_be_one(
    broker: Broker, topic: str
) -> None:
    await set_acls(broker, [allow("READ", "topic", topic)])
    servers = broker.servers_of("sasl")
    async with asyncio.timeout(HANG_TIMEOUT_S):
        async with Consumer(servers, topic, group="g", **USER_OPTIONS) as consumer:
            with pytest.raises(NotAuthorized, match="on group 'g'"):
                await consumer.getmany(1)


@pytest.mark.parametrize(
    ("subscription", "said"), [(["t"], "topic 't'"), (re.compile("t|u"), "any topic")]
)
@pytest.mark.usefixtures("topic")
async def test_a_member_of_a_group_raises_which_of_its_topics_it_may_not_see(
    broker: Broker, subscription: list[str] | re.Pattern[str], said: str
) -> None:
    await set_acls(broker, [allow("READ", "group", "g")])
    member: dict[str, Any] = {"group": "g", "start": "earliest", "metadata_max_age_ms": 30}
    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        Admin(**as_user(broker, ROOT)) as admin,
        Consumer(**as_user(broker), **member) as consumer,
    ):
        consumer.subscribe(subscription)
        for _ in range(2):
            with pytest.raises(NotAuthorized, match=f"no right DESCRIBE on {said}"):
                await consumer.getmany(1)
        await admin.create_acls([READ])
        assert [each.value for each in await _until_allowed(consumer)] == [b"v"]


async def test_a_member_of_a_group_goes_on_when_it_has_its_right_again(
    broker: Broker, topic: str
) -> None:
    await set_acls(broker, [allow("READ", "group", "g"), allow("READ", "topic", topic)])
    member: dict[str, Any] = {"group": "g", "start": "earliest", **USER_OPTIONS}
    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        Admin(**as_user(broker, ROOT)) as admin,
        Producer(**as_user(broker, ROOT)) as producer,
        Consumer(broker.servers_of("sasl"), topic, **member) as consumer,
    ):
        assert [each.value for each in await consumer.getmany(1)] == [b"v"]
        await admin.delete_acls([AclFilter(resource_type="topic")])
        with pytest.raises(NotAuthorized, match="no right READ on topic 't'"):
            await consumer.getmany(1)
        await producer.send(topic, b"w")
        await admin.create_acls([READ])
        assert [each.value for each in await _until_allowed(consumer)] == [b"w"]


async def test_a_consumer_begins_nowhere_else_while_it_may_not_see_its_offsets(
    broker: Broker, topic: str
) -> None:
    rights = [allow("READ", "group", "g"), allow("READ", "topic", topic)]
    denied = allow("DESCRIBE", "group", "g", deny=True)
    await set_acls(broker, rights)
    servers = broker.servers_of("sasl")
    options: dict[str, Any] = {"group": "g", "start": "earliest", **USER_OPTIONS}
    async with asyncio.timeout(HANG_TIMEOUT_S), Producer(**as_user(broker, ROOT)) as producer:
        async with Consumer(servers, topic, **options) as consumer:
            assert [each.value for each in await consumer.getmany(1)] == [b"v"]
            await consumer.commit()
        await set_acls(broker, [*rights, denied, *EVERYTHING])
        await producer.send(topic, b"w")
        async with Consumer(servers, **options) as consumer:
            consumer.assign([(topic, 0)])
            for _ in range(3):
                with pytest.raises(NotAuthorized, match="no right DESCRIBE on group 'g'"):
                    await consumer.getmany(1)
            await set_acls(broker, rights)
            assert [each.value for each in await _until_allowed(consumer)] == [b"w"]


async def test_a_consumer_that_says_where_to_begin_needs_no_committed_offset(
    broker: Broker, topic: str
) -> None:
    rights = [allow("READ", "group", "g"), allow("READ", "topic", topic)]
    await set_acls(broker, [*rights, allow("DESCRIBE", "group", "g", deny=True)])
    async with asyncio.timeout(HANG_TIMEOUT_S):
        servers = broker.servers_of("sasl")
        async with Consumer(servers, group="g", **USER_OPTIONS) as consumer:
            consumer.assign([(topic, 0)])
            with pytest.raises(NotAuthorized, match="no right DESCRIBE on group 'g'"):
                await consumer.getmany(1)
            consumer.seek((topic, 0), 0)
            assert [each.value for each in await consumer.getmany(1)] == [b"v"]


async def test_offsets_of_a_topic_that_is_denied_hold_up_no_other_topic(
    broker: Broker, topic: str
) -> None:
    await set_acls(broker, EVERYTHING)
    async with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        await admin.create_topic("other")
        await producer.send("other", b"o")
    await set_acls(broker, [allow("READ", "group", "g"), allow("READ", "topic", "other")])
    options: dict[str, Any] = {"group": "g", "start": "earliest", **USER_OPTIONS}
    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        Consumer(broker.servers_of("sasl"), **options) as consumer,
    ):
        consumer.assign([("other", 0), (topic, 0)])
        assert [each.value for each in await _until_allowed(consumer)] == [b"o"]


async def test_a_start_that_is_given_later_needs_no_committed_offset(
    broker: Broker, topic: str
) -> None:
    rights = [allow("READ", "group", "g"), allow("READ", "topic", topic)]
    await set_acls(broker, [*rights, allow("DESCRIBE", "group", "g", deny=True)])
    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        Consumer(broker.servers_of("sasl"), group="g", **USER_OPTIONS) as consumer,
    ):
        consumer.assign([(topic, 0)])
        consumer.assign([])
        consumer.assign([(topic, 0)], start="earliest")
        assert await consumer.position((topic, 0)) == 0
        assert [each.value for each in await consumer.getmany(1)] == [b"v"]


async def _until_allowed(consumer: Consumer[bytes, bytes]) -> list[Record[bytes, bytes]]:
    """What comes after the errors of a right that was missing until now."""
    while True:
        with suppress(NotAuthorized):
            return await consumer.getmany(1)
        await asyncio.sleep(0)


async def test_a_list_is_refused_where_a_client_can_see_nothing(broker: Broker, topic: str) -> None:
    async with asyncio.timeout(HANG_TIMEOUT_S), Admin(**as_user(broker)) as admin:
        with pytest.raises(NotAuthorized, match=f"User:{USER} has no right DESCRIBE on any topic"):
            await admin.list_topics()
        with pytest.raises(NotAuthorized, match=f"User:{USER} has no right DESCRIBE on any group"):
            await admin.list_groups()
        await set_acls(broker, [allow("READ", "topic", "mine"), allow("READ", "group", "mine")])
        assert (await admin.list_topics(), await admin.list_groups()) == ([], [])


async def test_entries_are_what_an_operator_has_asked_for(broker: Broker) -> None:
    wanted = [
        READ,
        Acl("User:*", "alter_configs", "cluster", "kafka-cluster", host="10.0.0.1"),
        Acl("User:eve", "all", "group", "g", "prefixed", permission="deny"),
    ]
    async with Admin(**as_user(broker, ROOT)) as admin:
        outcomes = await admin.create_acls([*wanted, READ])
        assert [each.unwrap() for each in outcomes.values()] == [True] * 3
        assert await admin.list_acls() == wanted
        assert await admin.list_acls(AclFilter(pattern="match", resource_name="t")) == [READ]
        wrong = Acl("eve", "read", "topic", "t")
        (refused,) = (await admin.create_acls([wrong])).values()
        assert "write User:NAME" in str(refused.error)
        filters = [AclFilter(resource_type="group"), AclFilter("User:*"), AclFilter("User:x")]
        assert await admin.delete_acls(filters) == [wanted[2], wanted[1]]
        assert await admin.list_acls() == [READ]


async def test_entries_without_event_loops(broker: Broker) -> None:
    def work() -> list[Acl]:
        with sync.Admin(**as_user(broker, ROOT)) as admin:
            assert admin.create_acls([READ])[READ].unwrap()
            assert admin.list_acls(AclFilter(READ.principal)) == [READ]
            return admin.delete_acls([AclFilter()])

    assert await asyncio.to_thread(work) == [READ]


async def test_a_broker_without_authorization_has_no_entries() -> None:
    async with Broker() as running, Admin(running.servers) as admin:
        with pytest.raises(AuthorizationDisabled):
            await admin.list_acls()


@pytest.mark.parametrize(
    ("field", "value"),
    [("operation", "READ"), ("resource_type", "table"), ("pattern", "regex"), ("permission", "no")],
)
def test_a_word_that_is_none_is_refused_where_it_is_written(field: str, value: str) -> None:
    fields: dict[str, Any] = {
        "principal": "User:a",
        "operation": "read",
        "resource_type": "topic",
        "resource_name": "t",
    }
    words: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError, match=f"{field}: '{value}' is none of"):
        Acl(**{**fields, **words})
    with pytest.raises(ConfigError, match=f"{field}: '{value}' is none of"):
        AclFilter(**words)
