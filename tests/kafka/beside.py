"""The same requests to Apache Kafka and to millrace: the same error codes, the same shape.

Owns what of a response is compared: error codes, names and numbers of topics and partitions, and
how many parts there are. `docs/kafka.md` explains the differences.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from millrace_protocol.kafka.group_membership import LeaveGroupRequest, MemberIdentity
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest, MetadataRequestTopic
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest
from millrace_protocol.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from millrace_protocol.records import encode_batch
from millrace_protocol.schema import Message
from tests.kafka.drawn_requests import GROUPS, KNOWN_IDS, TOPICS, Drawn
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce, topic_id
from tests.kafka.known_differences import CLOSED, SILENT, Difference, parts

PARTITIONS_MAX = 100
"""A request that was broken into one for more partitions is not sent: Kafka makes ten thousand, and
is then busy for minutes."""
BROKEN_SHARE = 5
"""One of so many requests has a body that is broken."""
RESPONSE_S = 2
LANES = 25
"""Connections to each broker, each with requests and groups of its own: Kafka leaves some requests
without a response, and the others do not wait for them."""
TIDY_EVERY = 10
"""Requests of each lane after which the topics are deleted that they have created: Kafka comes to a
stop with thousands of them."""
_IN_TURNS = (KafkaApiKey.CREATE_PARTITIONS, KafkaApiKey.ALTER_CLIENT_QUOTAS)
"""Changes of what the lanes share. Two at a time would come to the brokers in another order."""
_KEPT = (
    "group_id",
    "index",
    "name",
    "partition",
    "partition_id",
    "partition_index",
    "resource_name",
    "resource_type",
    "topic",
    "topic_name",
)
_LEFT_OUT = (
    "aborted_transactions",
    "api_keys",
    "brokers",
    "configs",
    "finalized_features",
    "members",
    "node_endpoints",
    "nodes",
    "record_errors",
    "results_of_directories",
    "supported_features",
)
"""What brokers of different makers have differently by right."""


class Side:
    """A connection to one of the two brokers. `ids` has those of its topics, for stand-ins."""

    def __init__(self, port: int, ids: Mapping[uuid.UUID, uuid.UUID] | None = None) -> None:
        self._port = port
        self._ids: Mapping[uuid.UUID, uuid.UUID] = ids or {}
        self._connection = AsyncExitStack()
        self._wire: KafkaWire | None = None

    async def prepare(self) -> None:
        """Makes the topics, with records, and waits until all coordinators have been loaded."""
        async with connect_kafka(self._port) as wire:
            # The records are from 2023.
            kept = (CreatableTopicConfig("retention.ms", "-1"),)
            new = tuple(CreatableTopic(name, count, 1, (), kept) for name, count in TOPICS.items())
            await wire.call(CreateTopicsRequest(new, 30_000), 7)
            for name, count in TOPICS.items():
                for number in range(count):
                    await self._fill(wire, name, number)
            self._ids = {KNOWN_IDS[name]: await topic_id(wire, name) for name in TOPICS}
            for group in GROUPS:
                while (await wire.call(FindCoordinatorRequest(group), 3)).error_code:
                    pass
                while (await wire.call(DeleteGroupsRequest((group,)), 2)).results[0].error_code != (
                    ErrorCode.GROUP_ID_NOT_FOUND
                ):
                    pass
            while (await wire.call(InitProducerIdRequest(None, 1_000), 4)).error_code:
                pass

    def another(self) -> Side:
        """One more connection to the same broker."""
        return Side(self._port, self._ids)

    async def tidy(self) -> None:
        """Deletes the topics that requests have created."""
        async with connect_kafka(self._port) as wire:
            found = await wire.call(MetadataRequest(None), 9)
            created = [each.name for each in found.topics if not each.is_internal]
            others = tuple(name for name in created if name not in TOPICS)
            if others:
                await wire.call(DeleteTopicsRequest(topic_names=others, timeout_ms=30_000), 5)

    async def empty_groups(self) -> None:
        """Takes all members out of their groups, whose sessions may last for half an hour."""
        async with connect_kafka(self._port) as wire:
            listed = await wire.call(ListGroupsRequest(), 2)
            for group in (each.group_id for each in listed.groups):
                described = (await wire.call(DescribeGroupsRequest((group,)), 5)).groups[0]
                for member in described.members:
                    leaving = MemberIdentity(member.member_id, member.group_instance_id)
                    await wire.call(LeaveGroupRequest(group, "", (leaving,)), 5)

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        self._wire = None
        await self._connection.aclose()

    async def _connected(self) -> KafkaWire:
        if self._wire is None:
            self._wire = await self._connection.enter_async_context(connect_kafka(self._port))
        return self._wire

    async def _fill(self, wire: KafkaWire, name: str, number: int) -> None:
        records = bytes(encode_batch([b"v"] * 3, timestamps_ms=1_700_000_000_000))
        request = produce(records, topic=name, partition=number)
        while (await wire.call(request, 9)).responses[0].partition_responses[0].error_code:
            named = MetadataRequest((MetadataRequestTopic(NO_ID, name),))
            await wire.call(named, 12)

    async def outcome(self, api: KafkaApi, version: int, body: bytes) -> object:
        """What the broker does with a request: what is compared of its response, or `CLOSED`."""
        for stand_in, real in self._ids.items():
            body = body.replace(stand_in.bytes, real.bytes)
        wire = await self._connected()
        try:
            async with asyncio.timeout(RESPONSE_S):
                await wire.send_raw(api.key, version, body)
                return compared(await wire.response(api, version))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            return CLOSED
        except TimeoutError:
            await self.close()
            return SILENT


def compared(value: object) -> object:
    """What is compared of a response: lists in any order, for some are maps in Kafka."""
    if not isinstance(value, Message):
        return value
    found: dict[str, object] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name in _LEFT_OUT:
            continue
        if isinstance(item, tuple):
            parts = [compared(each) for each in item if isinstance(each, Message)]
            found[field.name] = _merged([each for each in parts if _is_shown(each)])
        elif field.name.endswith("error_code") or field.name in _KEPT:
            found[field.name] = item
        elif isinstance(item, Message):
            found[field.name] = compared(item)
    return found


def _merged(parts: list[Any]) -> list[Any]:
    """The parts in some order: those of one topic together, and none without partitions."""
    by_name: dict[str, Any] = {}
    others: list[Any] = []
    for part in parts:
        names = [part[key] for key in ("name", "topic", "topic_name") if key in part]
        lists = [key for key, value in part.items() if isinstance(value, list)]
        if not names or len(lists) != 1 or any(part.get(k) for k in part if k.endswith("code")):
            others.append(part)
            continue
        known = by_name.setdefault(str(names[0]), part)
        if known is not part:
            known[lists[0]] += part[lists[0]]
    kept = [
        part
        for part in by_name.values()
        if any(value for value in part.values() if isinstance(value, list))
    ]
    for part in kept:
        for key, value in part.items():
            if isinstance(value, list):
                part[key] = _distinct(value)
    return _distinct(kept + others)


def _distinct(parts: list[Any]) -> list[Any]:
    return [part for _, part in sorted({repr(part): part for part in parts}.items())]


def _is_shown(part: object) -> bool:
    if not isinstance(part, dict):
        return True
    # The internal topics, and groups without a name.
    return not str(part.get("name")).startswith("__") and part.get("group_id") != ""


class Comparison(NamedTuple):
    """The requests of one api that were sent, how long that took, and what differed."""

    api: KafkaApi
    sent: int
    seconds: float
    differences: list[Difference]


async def compare(
    theirs: int, ours: int, *, count: int, seed: int, only: str = ""
) -> AsyncIterator[Comparison]:
    """Sends `count` requests of each api to both ports; yields each api when it is done."""
    sides = Side(theirs), Side(ours)
    for side in sides:
        await side.prepare()
    for api in KAFKA_APIS.values():
        if only in api.name:
            began_s = time.monotonic()
            turns = asyncio.Semaphore(1 if api.key in _IN_TURNS else LANES)
            lanes = [Lane(api, number, seed, sides, turns) for number in range(LANES)]
            for begin in range(0, count, LANES * TIDY_EVERY):
                await asyncio.gather(*(side.tidy() for side in sides))
                numbers = range(begin, min(count, begin + LANES * TIDY_EVERY))
                await asyncio.gather(*(lane.send(numbers[lane.number :: LANES]) for lane in lanes))
            for lane in lanes:
                await lane.close()
            await asyncio.gather(*(side.empty_groups() for side in sides))
            differences = [each for lane in lanes for each in lane.differences]
            sent = sum(lane.sent for lane in lanes)
            yield Comparison(api, sent, time.monotonic() - began_s, differences)


class Lane:
    """Requests of one api, one after the other, to both brokers."""

    def __init__(
        self,
        api: KafkaApi,
        number: int,
        seed: int,
        sides: Sequence[Side],
        turns: asyncio.Semaphore,
    ) -> None:
        self.number = number
        self.sent = 0
        self.differences: list[Difference] = []
        self._api = api
        self._turns = turns
        self._drawn = Drawn(seed * 1_000_000 + api.key * LANES + number, GROUPS[number::LANES])
        self._sides = [side.another() for side in sides]

    async def send(self, numbers: Iterable[int]) -> None:
        """Sends the requests with these numbers."""
        api = self._api
        for number in numbers:
            version = api.min_version + number // LANES % (api.max_version - api.min_version + 1)
            request = self._drawn.request(api.request, version)
            body = encode(request, version)
            if api.key is KafkaApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
                continue
            if not number // LANES % BROKEN_SHARE:
                broken = self._drawn.broken(body)
                body = body if _asks_for_many(read(api, version, broken)) else broken
            # At the same time, for groups have timeouts.
            async with self._turns:
                outcomes = await asyncio.gather(
                    *(side.outcome(api, version, body) for side in self._sides)
                )
            self.sent += 1
            if outcomes[0] != outcomes[1]:
                shown = read(api, version, body)
                self.differences.append(Difference(api, version, shown, *outcomes))

    async def close(self) -> None:
        """Closes the connections."""
        for side in self._sides:
            await side.close()


def _asks_for_many(request: Message | str) -> bool:
    names = ("count", "num_partitions")
    return any(getattr(part, name, 0) > PARTITIONS_MAX for part in parts(request) for name in names)


def read(api: KafkaApi, version: int, body: bytes) -> Message | str:
    """The request as millrace reads it; a text: why it does not."""
    try:
        return decode(api.request, body, version)
    except WireError as error:
        return str(error)


def summary(differences: list[Difference]) -> list[str]:
    """How many there are of each kind, the known ones without an example."""
    known = Counter(each.known_as() for each in differences)
    del known[None]
    lines = [f"{count:,} known: {sentence}" for sentence, count in known.most_common()]
    others = [each for each in differences if each.known_as() is None]
    counts = Counter(each.kind() for each in others)
    examples = {each.kind(): each for each in reversed(others)}
    return lines + [
        f"{count:,} times {kind}\n  {examples[kind]}" for kind, count in counts.most_common()
    ]
