"""Commits and fetches of a group's offsets: chunked, tried again, answered for each partition.

Owns the requests and what an answer means. Knows no positions: what is committed is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from millrace._broker_error import broker_error
from millrace._cluster.cluster import UNKNOWN_TOPIC_TRIES, Cluster
from millrace._cluster.leaders import PartitionResult
from millrace._group.coordinator import Coordinator
from millrace.errors import (
    IllegalGeneration,
    MemberFenced,
    MillraceError,
    NotAssigned,
    RebalanceInProgress,
    UnknownTopicOrPartition,
    again,
)
from millrace.groups import CommitOutcome, CommittedOffset
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import NO_GENERATION
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    GroupPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

PARTITIONS_PER_REQUEST = 2_000
"""Bound of one commit or fetch of offsets, so that none comes near the limit of a frame."""
TRY_MS_MIN = 1_000
"""What one try is given at least: the connection is given up when it is over, and heartbeats use
it too."""
_LEADER_EPOCH_UNKNOWN = -1

Offsets = Mapping[TopicPartition, tuple[int, str]]
"""`(offset, metadata)` of each partition; `offset` is the next record to process."""


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """The member and generation under which offsets are committed."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


class CommitMember(Protocol):
    """The member that commits, and the partitions it may commit for."""

    def commit_identity(self) -> CommitIdentity:
        """The identity of commits now."""
        ...

    def may_commit(self, where: TopicPartition) -> bool:
        """Whether the partition is the member's now."""
        ...

    def on_fenced(self, generation: int, error: MemberFenced) -> None:
        """The group has gone on without the member."""
        ...


def _unknown_epoch(where: TopicPartition, offset: int) -> int:
    """Of commits for partitions that the client does not read."""
    return _LEADER_EPOCH_UNKNOWN


class NoMember:
    """Commits without membership: of tools, and of consumers that assign partitions themselves."""

    def commit_identity(self) -> CommitIdentity:
        return CommitIdentity()

    def may_commit(self, where: TopicPartition) -> bool:
        return True

    def on_fenced(self, generation: int, error: MemberFenced) -> None:
        """There is no membership to lose."""


class Commits:
    """The committed offsets of one group, through one client."""

    def __init__(self, coordinator: Coordinator, cluster: Cluster) -> None:
        self.member: CommitMember = NoMember()
        self.epoch_before: Callable[[TopicPartition, int], int] = _unknown_epoch
        """The leader epoch of the last record before an offset."""
        self._coordinator = coordinator
        self._cluster = cluster
        # Held while a commit is on its way: one that is tried again must not overtake a later one,
        # which would take the group back.
        self._turn = asyncio.Lock()

    async def commit(
        self, offsets: Offsets, *, timeout_ms: int
    ) -> dict[TopicPartition, CommitOutcome]:
        """Commits, and returns an outcome for each partition; raises nothing.

        What may pass, such as a rebalance or a restart of the broker, is met by trying again for
        `timeout_ms`.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        outcomes: dict[TopicPartition, CommitOutcome] = {}
        left = dict(offsets)
        async with self._turn:
            attempt = 0
            while left:
                again = await self._attempt(left, outcomes, deadline, attempt)
                left = {where: left[where] for where in again}
                delay_s = self._cluster.backoff_ms(attempt) / 1000
                if not left or asyncio.get_running_loop().time() + delay_s >= deadline:
                    break
                await asyncio.sleep(delay_s)
                attempt += 1
        return {where: outcomes[where] for where in offsets}

    async def settled(self) -> None:
        """Returns when the commits asked for until now have been answered."""
        async with self._turn:
            pass

    async def _attempt(
        self,
        left: Offsets,
        outcomes: dict[TopicPartition, CommitOutcome],
        deadline: float,
        attempt: int,
    ) -> list[TopicPartition]:
        """Tries once to commit what is left; returns what is worth another try."""
        again: list[TopicPartition] = []
        mine: list[TopicPartition] = []
        for where, (offset, metadata) in left.items():
            if self.member.may_commit(where):
                mine.append(where)
            else:
                not_mine = NotAssigned(
                    f"{where} is not assigned to this consumer, or no longer: its "
                    "owner commits for it"
                )
                outcomes[where] = CommitOutcome(offset, metadata, error=not_mine)
        for chunk in _chunks(mine):
            identity = self.member.commit_identity()
            found = await self._send(identity, {where: left[where] for where in chunk}, deadline)
            fenced: MemberFenced | None = None
            for where, error in found.items():
                outcomes[where] = CommitOutcome(*left[where], identity.generation, error)
                if self._may_pass(error, identity, attempt):
                    again.append(where)
                elif isinstance(error, MemberFenced):
                    fenced = error
            if fenced is not None:
                self.member.on_fenced(identity.generation, fenced)
        return again

    async def _send(
        self, identity: CommitIdentity, offsets: Offsets, deadline: float
    ) -> dict[TopicPartition, MillraceError | None]:
        request = OffsetCommitRequest(
            self._coordinator.group,
            identity.generation,
            identity.member_id,
            identity.instance_id,
            tuple(
                CommitPartition(*where, offset, self.epoch_before(where, offset), metadata)
                for where, (offset, metadata) in offsets.items()
            ),
        )
        left_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
        timeout_ms = max(TRY_MS_MIN, left_ms)
        try:
            answer = await self._coordinator.call(
                request, OffsetCommitResponse, timeout_ms=timeout_ms
            )
        except MillraceError as error:
            return dict.fromkeys(offsets, again(error))
        return {
            TopicPartition(each.topic, each.partition): _error_of(each)
            for each in answer.partitions
        }

    def _may_pass(
        self, error: MillraceError | None, identity: CommitIdentity, attempt: int
    ) -> bool:
        if isinstance(error, IllegalGeneration):
            # The member itself has gone on to another generation while this was on its way.
            return self.member.commit_identity() != identity
        if isinstance(error, UnknownTopicOrPartition) and attempt + 1 >= UNKNOWN_TOPIC_TRIES:
            return False
        return error is not None and (error.retriable or isinstance(error, RebalanceInProgress))

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None for nothing. `partitions` None: all there is.

        Raises the first error of a partition, or what kept the coordinator from answering, when
        `timeout_ms` is over.
        """
        found: dict[TopicPartition, CommittedOffset | None] = {}
        chunks = [None] if partitions is None else list(_chunks(list(partitions)))
        for chunk in chunks:
            found.update(await self._fetch(chunk, timeout_ms))
        return found

    async def _fetch(
        self, chunk: Sequence[TopicPartition] | None, timeout_ms: int
    ) -> dict[TopicPartition, CommittedOffset | None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        asked = None if chunk is None else tuple(GroupPartition(*where) for where in chunk)
        attempt = 0
        while True:
            answer = await self._coordinator.call_until(
                OffsetFetchRequest(self._coordinator.group, asked),
                OffsetFetchResponse,
                timeout_ms=max(1, int((deadline - loop.time()) * 1000)),
            )
            errors = [error for each in answer.partitions if (error := _error_of(each)) is not None]
            delay_s = self._cluster.backoff_ms(attempt) / 1000
            if not errors:
                break
            if not errors[0].retriable or loop.time() + delay_s >= deadline:
                raise again(errors[0])
            await asyncio.sleep(delay_s)
            attempt += 1
        return {
            TopicPartition(each.topic, each.partition): None
            if each.offset < 0
            else CommittedOffset(
                each.offset, each.metadata or "", each.leader_epoch, each.commit_time_ms
            )
            for each in answer.partitions
        }


def _error_of(result: PartitionResult) -> MillraceError | None:
    if not result.error_code:
        return None
    about = str(TopicPartition(result.topic, result.partition))
    return broker_error(result.error_code, result.error_message, about=about)


def _chunks(partitions: Sequence[TopicPartition]) -> Iterable[list[TopicPartition]]:
    rest = iter(partitions)
    while chunk := list(islice(rest, PARTITIONS_PER_REQUEST)):
        yield chunk
