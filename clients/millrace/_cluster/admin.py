"""Brokers for an operator: their addresses, quorum, statistics, settings and data directories.

Owns these calls of the admin client. Each broker answers for itself, and the leader of the metadata
quorum for its followers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace.brokers import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirectory,
    PartitionSize,
    QuorumDescription,
    QuorumReplica,
)
from millrace.errors import BrokerError, ConnectionFailed, ConnectionLost, RequestTimedOut
from millrace.records import TopicPartition
from millrace.statistics import BrokerStatistics, of_response
from millrace_protocol.messages.configs import (
    ConfigEntry,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millrace_protocol.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from millrace_protocol.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from millrace_protocol.messages.statistics import (
    DescribeStatisticsRequest,
    DescribeStatisticsResponse,
)

ANY_BROKER = -1
_ANY_DIRECTORY = uuid.UUID(int=0)


class ClusterAdmin:
    """The part of the admin client that is about brokers."""

    _cluster: Cluster
    _timeout_ms: int

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers in service, by their ids, and one that takes changes."""
        self._check()
        answer = await self._cluster.call(MetadataRequest(()), MetadataResponse)
        return ClusterDescription(
            answer.cluster_id,
            _known(answer.controller_id),
            tuple(
                BrokerDescription(b.node_id, b.host, b.port, b.rack)
                for b in sorted(answer.brokers, key=lambda broker: broker.node_id)
            ),
        )

    async def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum, and how far each replica has come, as its leader knows it.

        Another broker answers while there is no leader, or none that can be reached; it does not
        know how far the others are.
        """
        self._check()
        request = DescribeQuorumRequest()
        answer = await self._cluster.call(request, DescribeQuorumResponse)
        if answer.leader_id not in self._cluster.metadata.brokers:
            await self._cluster.refresh(())
        if answer.leader_id in self._cluster.metadata.brokers:
            with suppress(ConnectionFailed, ConnectionLost, RequestTimedOut):
                connection = await self._cluster.connection(answer.leader_id)
                answer = await connection.call(
                    request, DescribeQuorumResponse, timeout_ms=self._timeout_ms
                )
        if answer.error_code:
            raise broker_error(answer.error_code, answer.error_message, about="the quorum")
        return _quorum(answer)

    async def add_voter(self, broker: int, *, directory_id: uuid.UUID | None = None) -> None:
        """Gives a broker a vote in the metadata quorum; returns when that is committed.

        The broker is registered and has caught up with the metadata log. A voter is a broker with
        its directory; None is the one that it is registered with. One change at a time: raises
        `VoterChangeRefused` during another one, and while the broker is behind,
        `BrokerNotRegistered`, and `BrokerError` if it votes already.
        """
        self._check()
        answer = await self._cluster.call(
            AddRaftVoterRequest(broker, directory_id or _ANY_DIRECTORY),
            AddRaftVoterResponse,
            to=self._cluster.controller,
        )
        if answer.error_code:
            raise broker_error(answer.error_code, answer.error_message, about=f"broker {broker}")

    async def remove_voter(self, broker: int, *, directory_id: uuid.UUID | None = None) -> None:
        """Takes a broker's vote in the metadata quorum; returns when that is committed.

        The broker goes on as one without a vote. Raises `VoterChangeRefused` during another change,
        and while too few of the other voters are active, `InvalidRequest` for the last voter, and
        `BrokerError` if the broker does not vote, or not with this directory.
        """
        self._check()
        answer = await self._cluster.call(
            RemoveRaftVoterRequest(broker, directory_id or _ANY_DIRECTORY),
            RemoveRaftVoterResponse,
            to=self._cluster.controller,
        )
        if answer.error_code:
            raise broker_error(answer.error_code, answer.error_message, about=f"broker {broker}")

    async def describe_statistics(
        self, broker: int | None = None, *, prefix: str = ""
    ) -> BrokerStatistics:
        """What one broker has counted since it started: `docs/statistics.md`.

        `broker` is a node id of `describe_cluster`; None asks any. `prefix` selects metrics by
        name. Raises `ConnectionFailed` when the cluster has no such broker.
        """
        self._check()
        await self._find(broker)
        answer = await self._cluster.call(
            DescribeStatisticsRequest(prefix),
            DescribeStatisticsResponse,
            to=None if broker is None else partial(self._cluster.connection, broker),
        )
        return of_response(answer)

    async def describe_broker_configs(self, broker: int | None = None) -> dict[str, ConfigValue]:
        """Every setting of one broker that is in force, by name; None asks any broker.

        Names are those of the broker's configuration file, with `limits.` and `topic.` before
        those of its tables. Raises `ConnectionFailed` when the cluster has no such broker.
        """
        self._check()
        await self._find(broker)
        answer = await self._cluster.call(
            DescribeConfigsRequest((), (ANY_BROKER if broker is None else broker,)),
            DescribeConfigsResponse,
            to=None if broker is None else partial(self._cluster.connection, broker),
        )
        (found,) = answer.brokers
        if found.error_code:
            raise broker_error(
                found.error_code, found.error_message, about=f"broker {found.node_id}"
            )
        return config_values(found.configs)

    async def describe_log_dirs(
        self, topics: Iterable[str] | None = None, *, broker: int | None = None
    ) -> list[LogDirectory]:
        """The data directories of all brokers or of one, with the sizes of their partitions.

        `topics` restricts the partitions; None is all of them, the broker's own included. A topic
        that a broker holds no partition of is left out. Raises `ConnectionFailed` when the cluster
        has no such broker.
        """
        self._check()
        wanted = None if topics is None else tuple(topics)
        if broker is None:
            await self._cluster.refresh(())
        else:
            await self._find(broker)
        asked = sorted(self._cluster.metadata.brokers) if broker is None else [broker]
        lists = await asyncio.gather(*(self._log_dirs_of(node_id, wanted) for node_id in asked))
        return [directory for part in lists for directory in part]

    # Inside

    async def _find(self, broker: int | None) -> None:
        cluster = self._cluster
        if broker is not None and broker not in cluster.metadata.brokers:
            await cluster.refresh(())
            if broker not in cluster.metadata.brokers:
                raise ConnectionFailed(f"the cluster has no broker {broker}")

    async def _log_dirs_of(
        self, node_id: int, topics: tuple[str, ...] | None
    ) -> list[LogDirectory]:
        answer = await self._cluster.call(
            DescribeLogDirsRequest(topics),
            DescribeLogDirsResponse,
            to=partial(self._cluster.connection, node_id),
        )
        return [_log_directory(answer.node_id, each) for each in answer.log_dirs]


def _quorum(answer: DescribeQuorumResponse) -> QuorumDescription:
    return QuorumDescription(
        _known(answer.leader_id),
        answer.leader_epoch,
        _known(answer.high_watermark),
        tuple(
            QuorumReplica(
                each.broker_id,
                each.directory_id,
                each.is_voter,
                _known(each.end_offset),
                _known(each.fetched_ms),
                _known(each.caught_up_ms),
            )
            for each in answer.replicas
        ),
    )


def _known(value: int) -> int | None:
    return value if value >= 0 else None


def config_values(entries: Sequence[ConfigEntry]) -> dict[str, ConfigValue]:
    """The settings of a topic or a broker, by name."""
    return {
        each.name: ConfigValue(
            each.value, each.is_default, each.source, each.is_read_only, each.doc
        )
        for each in entries
    }


def _log_directory(node_id: int, found: LogDir) -> LogDirectory:
    partitions = {
        TopicPartition(each.topic, each.partition): _size(each) for each in found.partitions
    }
    error = _error(found.error_code, found.error_message, found.path)
    return LogDirectory(
        node_id, found.path, found.total_bytes, found.usable_bytes, partitions, error
    )


def _size(found: LogDirPartition) -> PartitionSize:
    about = f"{found.topic}-{found.partition}"
    error = _error(found.error_code, found.error_message, about)
    return PartitionSize(found.size_bytes, found.offset_lag, error)


def _error(code: int, sentence: str | None, about: str) -> BrokerError | None:
    return broker_error(code, sentence, about=about) if code else None
