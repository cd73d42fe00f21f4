"""The errors between brokers are those that wire_spec.md W-12.14 lists."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from millrace_protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
)
from millrace_protocol.messages.broker_hello import BrokerHelloRequest, BrokerHelloResponse
from millrace_protocol.messages.broker_lifecycle import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignReplicasRequest,
    AssignReplicasResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ClientListener,
)
from millrace_protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from millrace_protocol.messages.replica_fetch import (
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from millrace_protocol.messages.replica_read import ReplicaReadRequest, ReplicaReadResponse
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import Topic
from millrace_server.peers.calls import Channel
from millrace_server.testing import Cluster
from tests.cluster.records import TOPIC, create_topic

SPECIFICATION = Path(__file__).parents[2] / "wire_spec.md"
DISK = {7, 56, 1000, 1001}
"""Those named D, which need a disk that fails, or no majority."""
NOBODY, NOTHING = uuid.UUID(int=99), -1


def listed() -> dict[str, tuple[set[int], set[int]]]:
    """The codes of each api: of its response, and of its results."""
    text = SPECIFICATION.read_text()
    section = text[text.index("### W-12.14") : text.index("### W-12.15")]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "api":
            for api in cells[0].split(", "):
                codes = set(map(int, re.findall(r"\d+", cells[1])))
                found[api] = (
                    codes | DISK if "D" in cells[1] else codes,
                    set(map(int, re.findall(r"\d+", cells[2]))),
                )
    return found


class Asker:
    """A broker that asks the active controller what brokers must not ask."""

    def __init__(self, cluster: Cluster, asker: int, asked: int) -> None:
        self.node = cluster.brokers[asker].node
        self.asked = asked
        self.response: defaultdict[str, set[int]] = defaultdict(set)
        self.results: defaultdict[str, set[int]] = defaultdict(set)

    async def ask(self, request: Any, response: type[Any]) -> None:
        """Notes the codes of the response and of its results."""
        api = type(request).__name__.removesuffix("Request")
        try:
            answer = await self.node.peers.call(
                self.asked, Channel.CONTROL, request, response, timeout_ms=30_000
            )
        except ApiError as error:
            self.response[api].add(error.code)
            return
        self.response[api].add(answer.error_code)
        for partition in getattr(answer, "partitions", ()):
            self.results[api].add(partition.error_code)


async def lifecycle(asker: Asker, broker_id: int, epoch: int) -> None:
    for sender, sent in ((broker_id, epoch + 1), (77, 1)):
        await asker.ask(BrokerHeartbeatRequest(sender, sent, 0, False), BrokerHeartbeatResponse)
        await asker.ask(AssignReplicasRequest(sender, sent, NOBODY, ()), AssignReplicasResponse)
        await asker.ask(AllocateProducerIdsRequest(sender, sent, 0), AllocateProducerIdsResponse)
        await asker.ask(AlterPartitionRequest(sender, sent, ()), AlterPartitionResponse)
    await asker.ask(AssignReplicasRequest(broker_id, epoch, NOBODY, ()), AssignReplicasResponse)
    await asker.ask(
        AllocateProducerIdsRequest(broker_id, epoch, 2**63 - 1), AllocateProducerIdsResponse
    )
    listeners = (ClientListener("plain", "h", 1, False),)
    for sender, directories in ((asker.asked, (NOBODY,)), (77, ())):
        await asker.ask(
            BrokerRegistrationRequest(
                sender, uuid.UUID(int=98), directories, listeners, "h", 2, None, NOTHING
            ),
            BrokerRegistrationResponse,
        )
    hello = BrokerHelloRequest(broker_id, NOBODY, None, 77)
    await asker.ask(hello, BrokerHelloResponse)
    hello = BrokerHelloRequest(broker_id, NOBODY, str(NOBODY), asker.asked)
    await asker.ask(hello, BrokerHelloResponse)


async def change_isrs(asker: Asker, topic: Topic, broker_id: int, epoch: int) -> None:
    led = next(n for n, known in enumerate(topic.partitions) if known.leader == broker_id)
    not_led = next(n for n, known in enumerate(topic.partitions) if known.leader != broker_id)
    known = topic.partitions[led]
    members = tuple(IsrMember(replica, -1) for replica in known.isr)
    stale = (*members[:-1], IsrMember(members[-1].broker_id, 1))
    right = (topic.topic_id, led, known.leader_epoch, known.partition_epoch, members)
    for change in (
        (NOBODY, *right[1:]),
        (topic.topic_id, 99, *right[2:]),
        (topic.topic_id, not_led, *right[2:]),
        (*right[:2], known.leader_epoch - 1, *right[3:]),
        (*right[:2], known.leader_epoch + 1, *right[3:]),
        (*right[:3], known.partition_epoch - 1, members),
        (*right[:4], stale),
        (*right[:4], ()),
    ):
        request = AlterPartitionRequest(broker_id, epoch, (AlteredPartition(*change),))
        await asker.ask(request, AlterPartitionResponse)


async def fetch(asker: Asker, topic: Topic, broker_id: int, epoch: int) -> None:
    there = next(n for n, known in enumerate(topic.partitions) if known.leader == asker.asked)
    elsewhere = next(n for n, known in enumerate(topic.partitions) if known.leader == broker_id)
    known = topic.partitions[there]
    for position in (
        (NOBODY, 0, 0, 0, -1, 0),
        (topic.topic_id, elsewhere, 0, 0, -1, 0),
        (topic.topic_id, there, known.leader_epoch - 1, 0, -1, 0),
        (topic.topic_id, there, known.leader_epoch + 1, 0, -1, 0),
        (topic.topic_id, there, known.leader_epoch, 99, -1, 0),
    ):
        partitions = (ReplicaFetchPartition(*position),)
        request = ReplicaFetchRequest(broker_id, epoch, True, 0, 100, partitions, ())
        await asker.ask(request, ReplicaFetchResponse)


async def read(asker: Asker, topic: Topic) -> None:
    for topic_id, number, offset in (
        (NOBODY, 0, 0),
        (topic.topic_id, 99, 0),
        (topic.topic_id, 0, 9),
    ):
        await asker.ask(ReplicaReadRequest(topic_id, number, offset, 100), ReplicaReadResponse)


def topic_of(cluster: Cluster, broker_id: int) -> Topic:
    return cluster.brokers[broker_id].node.broker.image.topics[TOPIC]


async def test_a_broker_answers_with_the_codes_that_are_listed(cluster: Cluster) -> None:
    """W-12.14"""
    await create_topic(cluster.servers, partitions=3)
    await cluster.wait_until_in_sync(TOPIC)
    controller = await cluster.controller()
    asking = next(each for each in cluster.brokers if each != controller)
    asker = Asker(cluster, asking, controller)
    epoch = cluster.brokers[asking].node.broker.lifecycle.epoch
    await lifecycle(asker, asking, epoch)
    topic = topic_of(cluster, controller)
    await change_isrs(asker, topic, asking, epoch)
    while topic is not topic_of(cluster, controller):
        # The ISR has changed meanwhile, and the changes were those of an older partition.
        topic = topic_of(cluster, controller)
        await change_isrs(asker, topic, asking, epoch)
    await asker.ask(FetchSnapshotRequest(99, 1, 0, 10), FetchSnapshotResponse)
    await fetch(asker, topic, asking, epoch)
    await read(asker, topic)
    for api, (response, results) in listed().items():
        assert asker.response[api] <= response | {0}, api
        assert asker.results[api] <= results | {0}, api
        if asker.response[api]:
            assert response - DISK - UNSEEN.get(api, set()) <= asker.response[api], api
            assert results - UNSEEN.get(api, set()) <= asker.results[api], api


UNSEEN: dict[str, set[int]] = {
    "BrokerHeartbeat": {41, 42},
    "AssignReplicas": {41},
    "AllocateProducerIds": {41},
    "BrokerRegistration": {41},
    "AlterPartition": {41, 108},
    "FetchSnapshot": {99},
    "ReplicaFetch": {2, 56, 42},
    "ReplicaRead": {2, 56},
}
"""Codes that need another moment: another controller, a reassignment, a disk that changes bytes."""


async def test_a_broker_that_is_no_controller_says_so(cluster: Cluster) -> None:
    """W-12.14"""
    controller = await cluster.controller()
    asking, asked = (each for each in cluster.brokers if each != controller)
    asker = Asker(cluster, asking, asked)
    epoch = cluster.brokers[asking].node.broker.lifecycle.epoch
    request = BrokerHeartbeatRequest(asking, epoch, 0, False)
    await asker.ask(request, BrokerHeartbeatResponse)
    assert asker.response["BrokerHeartbeat"] == {41}
