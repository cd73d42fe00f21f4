"""The admin client: topics, their settings, their records, and where they are.

The calls about groups are `_group.admin`'s, those about brokers `_cluster.admin`'s, those that move
replicas `_cluster.replica_admin`'s, those about users `_cluster.user_admin`'s,
those about their rights `_cluster.acl_admin`'s, those about quotas `_cluster.quota_admin`'s.

Owns the calls and their values. Every change of several topics answers for each of them; the
calls for a single one raise instead.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar, Unpack

from millrace._broker_error import broker_error
from millrace._cluster.acl_admin import AclAdmin
from millrace._cluster.admin import ClusterAdmin, config_values
from millrace._cluster.cluster import Cluster
from millrace._cluster.deletion import delete_records
from millrace._cluster.offsets import list_offsets
from millrace._cluster.quota_admin import QuotaAdmin
from millrace._cluster.ranges import split_ranges
from millrace._cluster.replica_admin import ReplicaAdmin
from millrace._cluster.security import security
from millrace._cluster.user_admin import UserAdmin
from millrace._group.admin import GroupAdmin
from millrace._kafka_methods import KafkaMethodHints
from millrace._owner import Owner, warn_if_open
from millrace.brokers import ConfigValue
from millrace.config import ClientConfig, ClientOptions, Servers, configure, parse_servers
from millrace.errors import BrokerError, Closed, again
from millrace.events import EventFeed, State
from millrace.groups import Outcome
from millrace.records import TopicPartition
from millrace_protocol.messages.admin import (
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    PartitionCount,
    TopicConfig,
    TopicResult,
)
from millrace_protocol.messages.admin import NewTopic as WireTopic
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChanges,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millrace_protocol.messages.delete_records import HIGH_WATERMARK
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse, TopicMetadata

T = TypeVar("T")
Configs = Mapping[str, str | int | None]
"""Topic settings; None stands for the broker's default."""

_NAMED_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. None: the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Configs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; `leader` is None while no broker leads it."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        """Whether it lacks a leader or an in-sync replica."""
        return self.leader is None or len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, its partitions by number."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset that was asked for; -1 when no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The offsets `[start_offset, end_offset)` of a partition, and what they take on the disk.

    Between two pieces of a range `size_bytes` is exact; where the range itself begins or ends in
    the middle of what the index knows, up to one index interval and one batch more are counted.
    """

    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TopicOutcome(Generic[T]):
    """The outcome of one topic: `error`, or None and a `value`."""

    name: str
    value: T | None = None
    error: BrokerError | None = None

    def unwrap(self) -> T:
        """The value. Raises the error."""
        if self.error is not None:
            raise again(self.error)
        assert self.value is not None
        return self.value


class Admin(
    GroupAdmin, ClusterAdmin, ReplicaAdmin, UserAdmin, AclAdmin, QuotaAdmin, KafkaMethodHints
):
    """Creates, describes and changes topics; describes brokers and consumer groups; moves replicas.

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("clicks", partitions=3)

    Settings are those of `config.ClientConfig`. Each call takes at most `request_timeout_ms`.
    """

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *,
        rng: random.Random | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        config: ClientConfig = configure(ClientConfig, options)
        self._timeout_ms = config.request_timeout_ms
        self._cluster = Cluster(
            parse_servers(servers),
            config,
            feed=EventFeed("admin"),
            **security(servers, config),
            rng=rng,
        )
        self._state = State.NEW
        self.owner = Owner("admin client")

    async def start(self) -> None:
        """Connects. Raises `ConnectionFailed` when none of the servers answers."""
        if self._state is not State.NEW:
            raise Closed(f"start: this admin client is {self._state}; make a new one")
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._state = State.RUNNING
        self.owner.take()

    async def close(self) -> None:
        """Disconnects."""
        self.owner.check()
        self.owner.release()
        self._state = State.CLOSED
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        warn_if_open(self)

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Configs | None = None,
    ) -> int:
        """Creates a topic; returns how many partitions it has.

        Raises `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidConfig`, ...
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        (outcome,) = await self.create_topics([topic])
        return outcome.unwrap()

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome[int]]:
        """Creates each topic for itself; the value is its number of partitions."""
        wire_topics = tuple(
            WireTopic(
                topic.name,
                -1 if topic.partitions is None else topic.partitions,
                -1 if topic.replication_factor is None else topic.replication_factor,
                _wire_configs(topic.configs),
            )
            for topic in topics
        )
        self._check()
        answer = await self._cluster.call(
            CreateTopicsRequest(wire_topics, validate_only),
            CreateTopicsResponse,
            to=self._cluster.controller,
        )
        return [_outcome(result, result.partitions) for result in answer.topics]

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records. Raises `UnknownTopicOrPartition`."""
        (outcome,) = await self.delete_topics([name])
        outcome.unwrap()

    async def delete_topics(self, names: Iterable[str]) -> list[TopicOutcome[bool]]:
        """Deletes topics with all their records."""
        self._check()
        answer = await self._cluster.call(
            DeleteTopicsRequest(tuple(names)),
            DeleteTopicsResponse,
            to=self._cluster.controller,
        )
        return [_outcome(result, True) for result in answer.topics]

    async def create_partitions(self, name: str, partitions: int) -> None:
        """Widens a topic to `partitions`. Keys may go to another partition from then on."""
        self._check()
        answer = await self._cluster.call(
            CreatePartitionsRequest((PartitionCount(name, partitions),), False),
            CreatePartitionsResponse,
            to=self._cluster.controller,
        )
        for result in answer.topics:
            _outcome(result, True).unwrap()

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; those of the broker itself only if asked for."""
        answer = await self._metadata(None)
        return sorted(t.name for t in answer.topics if internal or not t.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises `UnknownTopicOrPartition`."""
        (outcome,) = await self.describe_topics([name])
        return outcome.unwrap()

    async def describe_topics(self, names: Iterable[str]) -> list[TopicOutcome[TopicDescription]]:
        """The topics named, in this order."""
        names = tuple(names)
        answer = await self._metadata(names)
        found = {topic.name: topic for topic in answer.topics}
        return [_described(found[name]) for name in names if name in found]

    # Settings

    async def describe_configs(self, name: str) -> dict[str, ConfigValue]:
        """Every setting of a topic that is in force, by name."""
        self._check()
        answer = await self._cluster.call(DescribeConfigsRequest((name,)), DescribeConfigsResponse)
        (topic,) = answer.topics
        if topic.error_code:
            raise broker_error(topic.error_code, topic.error_message, about=topic.name)
        return config_values(topic.configs)

    async def alter_configs(
        self, name: str, configs: Configs, *, validate_only: bool = False
    ) -> None:
        """Changes settings of a topic, all or none; those not named stay.

        Raises `InvalidConfig`.
        """
        self._check()
        answer = await self._cluster.call(
            AlterConfigsRequest((ConfigChanges(name, _wire_configs(configs)),), validate_only),
            AlterConfigsResponse,
            to=self._cluster.controller,
        )
        for result in answer.topics:
            _outcome(result, True).unwrap()

    # Offsets and records

    async def list_offsets(
        self, questions: Mapping[TopicPartition | tuple[str, int], str | int]
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset for each partition: "earliest", "latest", "max_timestamp", or of the first
        record at or after a time in ms.
        """
        self._check()
        asked: dict[TopicPartition, int] = {}
        for where, time in questions.items():
            if isinstance(time, str):
                if time not in _NAMED_TIMES:
                    raise ValueError(f"{time!r}: must be one of {', '.join(_NAMED_TIMES)}, or ms")
                time = _NAMED_TIMES[time]
            asked[TopicPartition(*where)] = time
        answers = await list_offsets(self._cluster, asked, timeout_ms=self._timeout_ms)
        return {
            where: ListedOffset(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            for where, answer in answers.items()
        }

    async def split_ranges(
        self,
        ranges: Mapping[TopicPartition | tuple[str, int], tuple[int, int]],
        *,
        piece_bytes: int,
    ) -> dict[TopicPartition, list[Piece]]:
        """Cuts ranges `(start_offset, end_offset)` where batches begin, by the brokers' indexes.

        A piece has at least `piece_bytes`, compressed as they are stored, and up to one index
        interval (4 KiB) and one batch more; the last of a range may have less. An empty range has
        no pieces. Raises `OffsetOutOfRange` for a range that is not between the earliest and the
        latest offset, and `ValueError` for one that ends before it begins, for `piece_bytes`
        below 1 and for more than 100,000 pieces.
        """
        self._check()
        asked = {TopicPartition(*where): bounds for where, bounds in ranges.items()}
        answers = await split_ranges(
            self._cluster, asked, piece_bytes=piece_bytes, timeout_ms=self._timeout_ms
        )
        pieces: dict[TopicPartition, list[Piece]] = {}
        for where, (start, _) in asked.items():
            pieces[where] = []
            for cut in answers[where]:
                pieces[where].append(Piece(start, cut.end_offset, cut.size_bytes))
                start = cut.end_offset
        return pieces

    async def delete_records(
        self, offsets: Mapping[TopicPartition | tuple[str, int], int | Literal["latest"]]
    ) -> dict[TopicPartition, Outcome[int]]:
        """Deletes the records before an offset, in each partition for itself.

        "latest" (or -1, as in Kafka) deletes all records that can be read now. The value of an
        outcome is the first offset that is left. It is durable on every replica in sync: neither a
        crash nor another leader brings deleted records back. An outcome's error is
        `OffsetOutOfRange` beyond the high watermark, `PolicyViolation` in a topic that is only
        compacted, `InvalidTopic` in one of the broker's own, and `DiskFull` or `BrokerTimedOut`
        when the records are gone, but may come back.
        """
        self._check()
        wanted: dict[TopicPartition, int] = {}
        for where, offset in offsets.items():
            if isinstance(offset, str):
                if offset != "latest":
                    raise ValueError(f"{offset!r}: must be an offset or 'latest'")
                offset = HIGH_WATERMARK
            wanted[TopicPartition(*where)] = offset
        outcomes = await asyncio.gather(
            *(self._delete_records(where, offset) for where, offset in wanted.items())
        )
        return dict(zip(wanted, outcomes, strict=True))

    # Inside

    async def _delete_records(self, where: TopicPartition, offset: int) -> Outcome[int]:
        try:
            answers = await delete_records(
                self._cluster, {where: offset}, timeout_ms=self._timeout_ms
            )
        except BrokerError as error:
            return Outcome(error=error)
        return Outcome(answers[where].low_watermark)

    async def _metadata(self, topics: tuple[str, ...] | None) -> MetadataResponse:
        self._check()
        return await self._cluster.call(MetadataRequest(topics), MetadataResponse)

    def _check(self) -> None:
        if self._state is State.NEW:
            raise Closed("the admin client was not started: use `async with`, or await start()")
        if self._state is State.CLOSED:
            raise Closed("the admin client is closed")
        self.owner.check()


def _wire_configs(configs: Configs) -> tuple[TopicConfig, ...]:
    return tuple(
        TopicConfig(name, None if value is None else str(value)) for name, value in configs.items()
    )


def _outcome(result: CreatedTopic | TopicResult, value: T) -> TopicOutcome[T]:
    if result.error_code:
        error = broker_error(result.error_code, result.error_message, about=result.name)
        return TopicOutcome(result.name, error=error)
    return TopicOutcome(result.name, value)


def _described(topic: TopicMetadata) -> TopicOutcome[TopicDescription]:
    if topic.error_code:
        error = broker_error(topic.error_code, topic.error_message, about=topic.name)
        return TopicOutcome(topic.name, error=error)
    partitions = tuple(
        PartitionDescription(
            p.partition,
            p.leader_id if p.leader_id >= 0 else None,
            p.leader_epoch,
            p.replicas,
            p.isr,
        )
        for p in topic.partitions
    )
    return TopicOutcome(
        topic.name, TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions)
    )
