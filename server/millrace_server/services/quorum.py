"""The metadata quorum: for its other replicas, and for an operator who looks at it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.quorum import QuorumRequest, QuorumResponse
from millrace_server.api_error import ApiError
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.environment.seams import Environment
from millrace_server.raft.messages import SnapshotId
from millrace_server.raft.roles import Leader
from millrace_server.raft.voters import ReplicaKey, VoterSet
from millrace_server.services.request_context import RequestContext

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica of the metadata log. Times are 0 for the leader, -1 if unknown."""

    broker_id: int
    directory_id: uuid.UUID
    is_voter: bool
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The quorum in the epoch of its leader."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: Sequence[ReplicaState]


class Introduction(NamedTuple):
    """How a broker names itself to another one. `voters` is None while it does not know them."""

    key: ReplicaKey
    cluster_id: uuid.UUID | None
    voters: VoterSet | None


class QuorumService:
    """Answers for the replica of this broker."""

    def __init__(self, env: Environment, metadata: ClusterMetadata) -> None:
        self._env = env
        self._metadata = metadata

    def introduce(self, cluster_id: str | None, destination_id: int) -> Introduction:
        """Answers another broker that means `destination_id` of its cluster. Raises `ApiError`."""
        metadata = self._metadata
        known = metadata.cluster_id
        if destination_id != metadata.key.broker_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"This is broker {metadata.key.broker_id} and not {destination_id}; check the "
                "addresses in `quorum` of both brokers",
            )
        if known is not None and cluster_id is not None and cluster_id != str(known):
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Broker {destination_id} belongs to cluster {known}, and the request comes from "
                f"cluster {cluster_id}; use an empty data directory for a broker that moves from "
                "one cluster to another",
            )
        return Introduction(metadata.key, known, metadata.voters)

    async def answer(self, request: QuorumRequest) -> QuorumResponse:
        """The replica's response to another one. Raises `ApiError`."""
        return await self._metadata.exchange.answer(request)

    async def read_snapshot(
        self, snapshot: SnapshotId, *, position: int, max_bytes: int
    ) -> tuple[int, bytes]:
        """The size of a snapshot, and its bytes from `position` on. Raises `ApiError`."""
        return await self._metadata.read_snapshot(snapshot, position=position, max_bytes=max_bytes)

    def describe(self, context: RequestContext) -> QuorumState:
        """The quorum as far as this broker knows it: the leader knows how far the others are."""
        context.check_cluster(Operation.DESCRIBE)
        replica, log = self._metadata.replica, self._metadata.log
        role, now_ms = replica.node.replica.role, self._env.clock.monotonic_ms()
        voters = replica.voters
        own = ReplicaState(*replica.key, replica.key in voters, log.durable_offset, 0, 0)
        found = {replica.key: own}
        if isinstance(role, Leader):
            for key, progress in role.leadership.progress.items():
                if key not in voters and not self._is_registered(key):
                    continue  # It was retired, or has lost its directory.
                caught_up_ms = progress.caught_up_ms
                found[key] = ReplicaState(
                    *key,
                    key in voters,
                    progress.end_offset,
                    now_ms - progress.fetched_ms,
                    -1 if caught_up_ms < 0 else now_ms - caught_up_ms,
                )
        for key in voters.keys:
            found.setdefault(key, ReplicaState(*key, True, -1, -1, -1))
        leader_id = replica.leader_id
        return QuorumState(
            NO_LEADER if leader_id is None else leader_id,
            replica.epoch,
            log.committed_offset,
            [found[key] for key in sorted(found)],
        )

    def _is_registered(self, key: ReplicaKey) -> bool:
        broker = self._metadata.image.brokers.get(key.broker_id)
        return broker is not None and key.directory_id in broker.directory_ids
