"""Rights on a real broker: what lists leave out, what counts at once, who may change entries."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import acls as kafka_acls
from millrace_protocol.kafka.describe_cluster import DescribeClusterRequest
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.group_admin import DescribeGroupsRequest as KafkaDescribeGroups
from millrace_protocol.kafka.group_admin import ListGroupsRequest as KafkaListGroups
from millrace_protocol.kafka.metadata import (
    NO_ID,
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
)
from millrace_protocol.kafka.produce import ProducePartition, ProduceRequest, ProduceTopic
from millrace_protocol.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millrace_protocol.kafka.topics import DeleteTopicsRequest, DeleteTopicState
from millrace_protocol.messages import acls, group_admin, group_offsets
from millrace_server.api_error import ApiError
from millrace_server.metadata.acls import AclEntry, AclFilter
from millrace_server.principal import ANONYMOUS
from millrace_server.services.request_context import THIS_BROKER, RequestContext
from millrace_server.testing import Broker, Cluster
from tests.access.conftest import EVERYTHING, ROOT, allow, set_acls
from tests.broker.wire import Text, Wire, batch, connect, connect_text, values_of
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.kafka.kafka_wire import KafkaWire, connect_kafka
from tests.sasl.conftest import PASSWORD, USER, port_of
from tests.sasl.test_sasl_listeners import SHA_256, log_in, scram_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import admin as kafka_admin

ADA = f"User:{USER}"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    """A native connection of `USER`."""
    async with connect(port_of(broker, "sasl")) as connected:
        await log_in(connected, scram_client())
        yield connected


@pytest.fixture
async def kafka(broker: Broker) -> AsyncIterator[KafkaWire]:
    """A connection of `USER` that speaks Kafka's protocol."""
    async with connect_kafka(port_of(broker, "sasl")) as connected:
        await log_in_to_kafka(connected, USER)
        yield connected


async def log_in_to_kafka(connected: KafkaWire, user: str) -> None:
    scram = scram_client(user)
    await connected.call(SaslHandshakeRequest(SHA_256), 1)
    first = await connected.call(SaslAuthenticateRequest(scram.first()), 2)
    await connected.call(SaslAuthenticateRequest(scram.final(first.auth_bytes)), 2)


@pytest.fixture
async def text(broker: Broker) -> AsyncIterator[Text]:
    """Lines of an anonymous client."""
    async with connect_text(port_of(broker, "plain")) as connected:
        yield connected


@pytest.fixture
async def made(broker: Broker) -> Broker:
    """The broker with topics `seen` and `hidden`, a record each, and groups of the same names."""
    await set_acls(broker, EVERYTHING)
    async with connect(port_of(broker, "plain")) as wire:
        for name in ("seen", "hidden"):
            await wire.create(name)
            assert (await wire.produce(name, batch(b"v"))).error_code == 0
        async with Admin(broker.servers) as admin:
            for name in ("seen", "hidden"):
                offsets = {("seen", 0): 1, ("hidden", 0): 1}
                for outcome in (await admin.alter_group_offsets(name, offsets)).values():
                    outcome.unwrap()
    await set_acls(broker, [])
    return broker


async def test_lists_leave_out_what_a_client_may_not_describe(
    made: Broker, wire: Wire, kafka: KafkaWire, text: Text
) -> None:
    """W-4.44"""

    async def listed() -> dict[str, Any]:
        groups = await wire.ask(group_admin.ListGroupsRequest(()), group_admin.ListGroupsResponse)
        of_kafka = await kafka.call(MetadataRequest(None), 12)
        groups_of_kafka = await kafka.call(KafkaListGroups(), 4)
        return {
            "native topics": await wire.topics(),
            "native groups": [each.group for each in groups.groups],
            "kafka topics": [each.name for each in of_kafka.topics],
            "kafka groups": [each.group_id for each in groups_of_kafka.groups],
            "text topics": [line.split()[1] for line in (await text.ask("TOPICS"))[:-1]],
            "text groups": [line.split()[1] for line in (await text.ask("GROUPS"))[:-1]],
        }

    def readers(name: str) -> list[AclEntry]:
        return [
            allow("READ", kind, name, principal)
            for kind in ("topic", "group")
            for principal in (ADA, "User:ANONYMOUS")
        ]

    await set_acls(made, readers("absent"))
    assert not any((await listed()).values())
    await set_acls(made, readers("seen"))
    assert set(map(tuple, (await listed()).values())) == {("seen",)}
    all_groups = allow("DESCRIBE", "cluster", "kafka-cluster", "User:*")
    await set_acls(made, [all_groups, allow("READ", "topic", "absent", "User:*")])
    found = await listed()
    assert {name for name, names in found.items() if names == ["hidden", "seen"]} == {
        "native groups",
        "kafka groups",
        "text groups",
    }


async def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(
    made: Broker, wire: Wire
) -> None:
    """W-4.44"""
    await set_acls(made, [allow("READ", "group", "seen"), allow("READ", "topic", "seen")])
    every = await wire.ask(
        group_offsets.OffsetFetchRequest("seen", None), group_offsets.OffsetFetchResponse
    )
    assert [(each.topic, each.offset) for each in every.partitions] == [("seen", 1)]
    named = tuple(group_offsets.GroupPartition(name, 0) for name in ("hidden", "seen"))
    found = await wire.ask(
        group_offsets.OffsetFetchRequest("seen", named), group_offsets.OffsetFetchResponse
    )
    assert [(each.error_code, each.offset) for each in found.partitions] == [(DENIED, -1), (0, 1)]


async def test_the_lag_of_a_group_is_that_of_topics_that_may_be_described(
    made: Broker, text: Text
) -> None:
    """W-8.4"""
    await set_acls(made, [allow("DESCRIBE", "group", "seen", ANONYMOUS)])
    assert await text.ask("LAG seen") == ["OK 0 partitions"]
    seen = [allow("DESCRIBE", kind, "seen", ANONYMOUS) for kind in ("group", "topic")]
    await set_acls(made, seen)
    assert await text.ask("LAG seen") == [
        "topic seen partition 0 committed 1 high watermark 1 lag 0 member -",
        "OK 1 partition",
    ]


async def test_offsets_of_a_topic_are_changed_by_its_readers_alone(
    made: Broker, wire: Wire
) -> None:
    """W-4.44"""
    await set_acls(made, [allow("ALL", "group", "seen"), allow("READ", "topic", "seen")])
    commits = tuple(
        group_offsets.CommitPartition(name, 0, 0, -1, "") for name in ("hidden", "seen", "none")
    )
    committed = await wire.ask(
        group_offsets.OffsetCommitRequest("seen", -1, "", None, commits),
        group_offsets.OffsetCommitResponse,
    )
    assert [each.error_code for each in committed.partitions] == [DENIED, 0, DENIED]
    named = tuple(group_offsets.GroupPartition(name, 0) for name in ("hidden", "seen"))
    deleted = await wire.ask(
        group_offsets.OffsetDeleteRequest("seen", named), group_offsets.OffsetDeleteResponse
    )
    assert [each.error_code for each in deleted.partitions] == [DENIED, 0]
    async with connect(port_of(made, "sasl")) as root:
        await log_in(root, scram_client(ROOT))
        left = await root.ask(
            group_offsets.OffsetFetchRequest("seen", None), group_offsets.OffsetFetchResponse
        )
    assert [(each.topic, each.offset) for each in left.partitions] == [("hidden", 1)]


async def test_a_topic_without_rights_has_no_id(made: Broker, kafka: KafkaWire) -> None:
    """As one that does not exist, whose id is unknown too."""
    known = made.node.broker.image.topics["seen"].topic_id

    async def codes() -> list[int]:
        records = ProducePartition(0, bytes(batch(b"v")))
        produced = await kafka.call(
            ProduceRequest(None, -1, 1_000, (ProduceTopic("", known, (records,)),)), 13
        )
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        fetched = await kafka.call(
            FetchRequest(max_bytes=1_000, topics=(FetchTopic("", known, (wanted,)),)), 17
        )
        named = await kafka.call(MetadataRequest((MetadataRequestTopic(known, None),)), 12)
        return [
            produced.responses[0].partition_responses[0].error_code,
            fetched.responses[0].partitions[0].error_code,
            named.topics[0].error_code,
        ]

    assert await codes() == [100, 100, 100]
    await set_acls(made, [allow("READ", "topic", "seen"), allow("WRITE", "topic", "seen")])
    assert await codes() == [0, 0, 0]
    await set_acls(made, [allow("READ", "topic", "seen")])
    assert await codes() == [DENIED, 0, 0]


async def test_a_refused_deletion_tells_no_id(made: Broker, kafka: KafkaWire) -> None:
    wanted = tuple(DeleteTopicState(name) for name in ("seen", "none"))
    refused = await kafka.call(DeleteTopicsRequest(wanted), 6)
    found = [(each.name, each.topic_id, each.error_code) for each in refused.responses]
    assert found == [("seen", NO_ID, DENIED), ("none", NO_ID, DENIED)]


async def test_a_change_of_the_entries_counts_from_the_next_request_on(
    made: Broker, wire: Wire
) -> None:
    """W-4.44.2"""
    assert (await wire.fetch("seen", 0)).error_code == DENIED
    await set_acls(made, [allow("READ", "topic", "seen")])
    assert values_of(await wire.fetch("seen", 0)) == [b"v"]
    denial = allow("READ", "topic", "*", "User:*", deny=True)
    await set_acls(made, [allow("READ", "topic", "seen"), denial])
    assert (await wire.fetch("seen", 0)).error_code == DENIED


async def test_a_client_that_follows_a_partition_stops_when_it_loses_the_right(
    made: Broker, text: Text
) -> None:
    rights = [allow(right, "topic", "seen", "User:ANONYMOUS") for right in ("READ", "WRITE")]
    await set_acls(made, rights)
    async with connect(port_of(made, "plain")) as producer:
        text.type("TAIL seen 0")
        async with asyncio.timeout(HANG_TIMEOUT_S):
            watchers = made.node.broker.partitions.get("seen", 0).watchers
            while not watchers:  # noqa: ASYNC110 - nothing announces that the peer follows
                await asyncio.sleep(0)
        await producer.produce("seen", batch(b"shown"))
        assert "shown" in await text.line()
        await set_acls(made, rights[1:])
        await producer.produce("seen", batch(b"kept"))
        assert (await text.line()).startswith("ERR TOPIC_AUTHORIZATION_FAILED User:ANONYMOUS has")


async def test_a_text_description_shows_settings_to_those_who_may_see_them(
    made: Broker, text: Text
) -> None:
    await set_acls(made, [allow("DESCRIBE", "topic", "seen", "User:ANONYMOUS")])
    (refused,) = await text.ask("DESCRIBE seen")
    assert "no right DESCRIBE_CONFIGS on topic 'seen'" in refused
    entries = [allow(op, "topic", "seen", "User:ANONYMOUS") for op in ("DESCRIBE", "ALTER_CONFIGS")]
    await set_acls(made, entries)
    assert (await text.ask("DESCRIBE seen"))[-1] == "OK"


async def test_kafka_clients_are_told_what_they_may_do(made: Broker, kafka: KafkaWire) -> None:
    """As bits, one for the number of each operation (KIP-430)."""
    entries = [allow("READ", "topic", "seen"), allow("READ", "group", "seen")]
    await set_acls(made, [*entries, allow("DESCRIBE", "cluster", "kafka-cluster")])
    asked = (MetadataRequestTopic(NO_ID, "seen"), MetadataRequestTopic(NO_ID, "hidden"))
    found = await kafka.call(MetadataRequest(asked, False, True, True), 10)
    bits = [each.topic_authorized_operations for each in found.topics]
    assert bits == [1 << 3 | 1 << 8, UNKNOWN_OPERATIONS]
    assert found.cluster_authorized_operations == 1 << 8
    groups = await kafka.call(KafkaDescribeGroups(("seen",), True), 5)
    assert groups.groups[0].authorized_operations == 1 << 3 | 1 << 8
    cluster = await kafka.call(DescribeClusterRequest(True), 1)
    assert cluster.cluster_authorized_operations == 1 << 8


async def test_super_users_need_no_entries(made: Broker) -> None:
    await set_acls(made, [allow("ALL", "topic", "*", "User:*", deny=True)])
    async with connect(port_of(made, "sasl")) as wire:
        await log_in(wire, scram_client(ROOT))
        assert values_of(await wire.fetch("seen", 0)) == [b"v"]
        assert (await wire.delete("seen")).error_code == 0


async def test_a_denial_is_counted_and_logged_with_what_was_asked(
    made: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    before = made.statistics().value("millrace_denials_total", resource_type="topic")
    with caplog.at_level(logging.WARNING, "millrace.authorization"):
        for _ in range(100):
            await wire.fetch("hidden", 0)
    after = made.statistics().value("millrace_denials_total", resource_type="topic")
    assert after - before == 100
    lines = [each for each in caplog.messages if "denied" in each]
    assert 1 <= len(lines) <= 20
    for part in (f"principal={ADA}", "host=127.0.0.1", "operation=READ", "resource=hidden"):
        assert part in lines[0]


ENTRY = (2, 3, "t", "User:eve", "*", 3, 3)
ANY = (1, 1, None, None, None, 1, 1)


async def operator(wire: Wire) -> Wire:
    await log_in(wire, scram_client(ROOT))
    return wire


async def test_entries_are_added_chosen_and_removed(broker: Broker) -> None:
    """W-4.41, W-4.42, W-4.43"""
    async with connect(port_of(broker, "sasl")) as wire:
        await operator(wire)
        prefixed = (2, 4, "te", "User:eve", "10.0.0.1", 2, 2)
        entries = tuple(acls.Acl(*each) for each in (ENTRY, prefixed, ENTRY))
        created = await wire.ask(acls.CreateAclsRequest(entries), acls.CreateAclsResponse)
        assert [each.error_code for each in created.results] == [0, 0, 0]

        async def described(*chosen: Any) -> list[acls.Acl]:
            filters = tuple(acls.AclFilter(*each) for each in chosen)
            request = acls.DescribeAclsRequest(filters)
            return [*(await wire.ask(request, acls.DescribeAclsResponse)).acls]

        assert await described(ANY) == [*entries[:2]]
        assert await described() == []
        # What a topic of that name matches, and patterns of exactly that text.
        assert await described((2, 2, "test", None, None, 1, 1)) == [entries[1]]
        assert await described((2, 3, "test", None, None, 1, 1), (1, 1, "t", *ANY[3:])) == [
            entries[0]
        ]
        filters = tuple(acls.AclFilter(*each) for each in ((2, 1, "none", *ANY[3:]), ANY))
        deleted = await wire.ask(acls.DeleteAclsRequest(filters), acls.DeleteAclsResponse)
        assert [[*each.acls] for each in deleted.results] == [[], [*entries[:2]]]
        assert await described(ANY) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({0: 1}, "one type of resource"),
        ({0: 6}, "There is no ResourceType 6"),
        ({1: 2}, "literal or prefixed"),
        ({2: ""}, "1 to 1000 characters"),
        ({2: "x" * 1_001}, "1 to 1000 characters"),
        ({0: 4, 2: "cluster", 5: 7}, "named kafka-cluster"),
        ({3: "eve"}, "write User:NAME"),
        ({4: "host.example"}, "an IP address, or *"),
        ({5: 12}, "no IDEMPOTENT_WRITE of a TOPIC"),
        ({5: 99}, "There is no Operation 99"),
        ({6: 1}, "allows or denies"),
    ],
)
async def test_an_entry_that_cannot_be_is_refused_beside_the_others(
    broker: Broker, changes: dict[int, Any], why: str
) -> None:
    """W-4.42.1"""
    wrong = [changes.get(number, value) for number, value in enumerate(ENTRY)]
    async with connect(port_of(broker, "sasl")) as wire:
        await operator(wire)
        request = acls.CreateAclsRequest((acls.Acl(*wrong), acls.Acl(*ENTRY)))
        created = await wire.ask(request, acls.CreateAclsResponse)
        assert [each.error_code for each in created.results] == [ErrorCode.INVALID_REQUEST, 0]
        assert why in (created.results[0].error_message or "")


async def test_names_of_32_kib_are_answered_in_sentences_of_bounded_length(
    broker: Broker, wire: Wire
) -> None:
    name = "\0" * 32_767
    assert len((await wire.topic(name)).error_message or "") < 1_000
    async with connect(port_of(broker, "sasl")) as root:
        await operator(root)
        wrong = (
            acls.Acl(*(*ENTRY[:2], name, *ENTRY[3:])),
            acls.Acl(*(*ENTRY[:3], name, *ENTRY[4:])),
        )
        for each in (*wrong, acls.Acl(*(*ENTRY[:4], name, *ENTRY[5:]))):
            request = acls.CreateAclsRequest((each,))
            created = await root.ask(request, acls.CreateAclsResponse)
            assert created.results[0].error_code == ErrorCode.INVALID_REQUEST
            assert len(created.results[0].error_message or "") < 1_000


async def test_a_filter_that_cannot_be_is_refused(broker: Broker) -> None:
    """W-4.41.1"""
    wrong = acls.AclFilter(2, 9, None, None, None, 1, 1)
    async with connect(port_of(broker, "sasl")) as wire:
        await operator(wire)
        for request in (acls.DescribeAclsRequest((wrong,)), acls.DeleteAclsRequest((wrong,))):
            code, sentence = await wire.refused(request)
            assert code is ErrorCode.INVALID_REQUEST
            assert "There is no PatternType 9" in sentence


async def test_a_broker_without_authorization_has_no_entries() -> None:
    """W-4.41.1"""
    async with Broker() as running, connect_kafka(port_of(running, "plain")) as kafka:
        answer = await kafka.call(kafka_acls.DescribeAclsRequest(*KAFKA_ANY), 3)
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
        created = await kafka.call(kafka_acls.CreateAclsRequest((KAFKA_ENTRY,)), 3)
        assert created.results[0].error_code == ErrorCode.SECURITY_DISABLED
        wanted = kafka_acls.DeleteAclsRequest((kafka_acls.DeleteAclsFilter(*KAFKA_ANY),))
        deleted = await kafka.call(wanted, 3)
        assert deleted.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED


async def test_an_address_may_be_written_as_java_writes_it(broker: Broker) -> None:
    async with connect_kafka(port_of(broker, "sasl")) as kafka:
        await log_in_to_kafka(kafka, ROOT)
        entry = kafka_acls.AclCreation(2, "t", 3, "User:eve", "0:0:0:0:0:0:0:1", 3, 3)
        created = await kafka.call(kafka_acls.CreateAclsRequest((entry,)), 3)
        assert created.results[0].error_code == ErrorCode.NONE
        chosen = (*KAFKA_ANY[:4], "0:0:0:0:0:0:0:1", *KAFKA_ANY[5:])
        for kind in (KAFKA_ANY, chosen):
            found = await kafka.call(kafka_acls.DescribeAclsRequest(*kind), 3)
            assert "::1" in [each.host for each in found.resources[-1].acls]


KAFKA_ANY = (1, None, 1, None, None, 1, 1)
KAFKA_ENTRY = kafka_acls.AclCreation(2, "t", 3, "User:eve", "*", 3, 3)


async def test_entries_outlive_a_restart_and_a_snapshot(made: Broker) -> None:
    entries = [allow("READ", "topic", "seen"), allow("DELETE", "group", "g", deny=True)]
    await set_acls(made, entries)
    await made.stop()
    await made.start()
    assert [*made.node.broker.image.acls.entries] == entries


async def test_each_broker_of_a_cluster_has_the_entries_and_checks_its_own_clients() -> None:
    async with Cluster(3, authorization="on", super_users="User:ANONYMOUS") as cluster:
        services = [each.node.broker.services for each in cluster.brokers.values()]
        follower = next(each for each in services if not each.controller.is_here)
        eve = RequestContext("127.0.0.1:1", follower.authorizer, "User:eve")
        # The controller would take it from a broker: the broker of the client refuses it.
        with pytest.raises(ApiError, match="no right CREATE on topic 't'"):
            await follower.topics.create(eve, "t")
        created = await follower.acls.create(THIS_BROKER, [allow("CREATE", "topic", "t", "User:*")])
        assert created == [None]
        async with asyncio.timeout(HANG_TIMEOUT_S):
            for each in services:
                while not each.acls.describe(THIS_BROKER, [AclFilter()]):  # noqa: ASYNC110
                    await asyncio.sleep(0)
        assert (await follower.topics.create(eve, "t")).name == "t"
        removed = await follower.acls.delete(THIS_BROKER, [AclFilter()])
        assert [each.principal for each in removed[0]] == ["User:*"]


async def test_admin_of_kafka_python_adds_and_removes_entries(broker: Broker) -> None:

    def work() -> None:
        client = kafka_admin.KafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{port_of(broker, 'sasl')}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=SHA_256,
            sasl_plain_username=ROOT,
            sasl_plain_password=PASSWORD,
        )
        try:
            pattern = kafka_admin.ResourcePattern(kafka_admin.ResourceType.TOPIC, "t")
            made = kafka_admin.ACL(
                "User:eve",
                "*",
                kafka_admin.ACLOperation.READ,
                kafka_admin.ACLPermissionType.ALLOW,
                pattern,
            )
            client.create_acls([made])
            found, _ = client.describe_acls(
                kafka_admin.ACLFilter(
                    None,
                    None,
                    kafka_admin.ACLOperation.ANY,
                    kafka_admin.ACLPermissionType.ANY,
                    pattern,
                )
            )
            assert [each.principal for each in found] == ["User:eve"]
            client.delete_acls([made])
        finally:
            client.close()

    await asyncio.to_thread(work)
    assert not broker.node.broker.image.acls.entries
