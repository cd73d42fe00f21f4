"""Groups for an operator: their members, their committed offsets, and changes of these.

Owns these calls of the admin client. A group lives on the broker that coordinates it, so each call
finds that broker; a list asks all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TypeVar

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace._group.commits import Commits
from millrace._group.coordinator import Coordinator
from millrace.assignors import Subscription, decode_assigned
from millrace.errors import GroupNotFound
from millrace.groups import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Outcome,
)
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import PROTOCOL_TYPE
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millrace_protocol.messages.group_offsets import (
    GroupPartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)

_DEAD = "Dead"
P = TypeVar("P", bound=tuple[str, int])


class GroupAdmin:
    """The part of the admin client that is about consumer groups."""

    _cluster: Cluster
    _timeout_ms: int

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def list_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups, by name; only those in one of `states` (`Stable`, `Empty`, ...) if given."""
        self._check()
        await self._cluster.refresh(())
        wanted = tuple(states)
        lists = await asyncio.gather(
            *(self._list_of(node_id, wanted) for node_id in sorted(self._cluster.metadata.brokers))
        )
        return sorted((group for part in lists for group in part), key=lambda group: group.group)

    async def describe_group(self, group: str) -> GroupDescription:
        """One group and its members. Raises `GroupNotFound`."""
        (outcome,) = (await self.describe_groups([group])).values()
        found = outcome.unwrap()
        if found.state == _DEAD:
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        return found

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, Outcome[GroupDescription]]:
        """The groups named and their members, each for itself; Dead where there is none."""
        self._check()
        names = list(dict.fromkeys(groups))
        outcomes = await asyncio.gather(*map(self._describe, names))
        return dict(zip(names, outcomes, strict=True))

    async def delete_group(self, group: str) -> None:
        """Forgets a group without members, and its offsets.

        Raises `GroupNotEmpty`, `GroupNotFound`.
        """
        (outcome,) = (await self.delete_groups([group])).values()
        outcome.unwrap()

    async def delete_groups(self, groups: Iterable[str]) -> dict[str, Outcome[bool]]:
        """Forgets groups without members, and their offsets, each for itself."""
        self._check()
        names = list(dict.fromkeys(groups))
        outcomes = await asyncio.gather(*map(self._delete, names))
        return dict(zip(names, outcomes, strict=True))

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """How far a group has come, in all partitions where it has committed, or in those named.

        A partition in which it has committed nothing is left out.
        """
        self._check()
        wanted = None if partitions is None else [TopicPartition(*where) for where in partitions]
        found = await self._commits(group).fetch(wanted, timeout_ms=self._timeout_ms)
        return {where: offset for where, offset in found.items() if offset is not None}

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[P, int | tuple[int, str]]
    ) -> dict[TopicPartition, Outcome[int]]:
        """Takes a group without members elsewhere: its offset in each partition, alone or with a
        text beside it. A group that has members refuses for each partition.
        """
        self._check()
        wanted = {
            TopicPartition(*where): (to, "") if isinstance(to, int) else to
            for where, to in offsets.items()
        }
        done = await self._commits(group).commit(wanted, timeout_ms=self._timeout_ms)
        return {
            where: Outcome(outcome.offset if outcome.error is None else None, outcome.error)
            for where, outcome in done.items()
        }

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, Outcome[bool]]:
        """Forgets how far a group has come in partitions of topics that no member reads.

        Raises `GroupNotFound`.
        """
        self._check()
        request = OffsetDeleteRequest(group, tuple(GroupPartition(*where) for where in partitions))
        answer = await self._coordinator(group).call_until(
            request, OffsetDeleteResponse, timeout_ms=self._timeout_ms
        )
        outcomes: dict[TopicPartition, Outcome[bool]] = {}
        for result in answer.partitions:
            where = TopicPartition(result.topic, result.partition)
            outcomes[where] = _outcome(result.error_code, result.error_message, str(where))
        return outcomes

    # Inside

    def _coordinator(self, group: str) -> Coordinator:
        return Coordinator(self._cluster, group)

    def _commits(self, group: str) -> Commits:
        return Commits(self._coordinator(group), self._cluster)

    async def _list_of(self, node_id: int, states: tuple[str, ...]) -> list[GroupListing]:
        answer = await self._cluster.call(
            ListGroupsRequest(states),
            ListGroupsResponse,
            to=lambda: self._cluster.connection(node_id),
        )
        return [
            GroupListing(each.group, each.state, each.protocol_type, each.members)
            for each in answer.groups
        ]

    async def _describe(self, group: str) -> Outcome[GroupDescription]:
        answer = await self._coordinator(group).call_until(
            DescribeGroupsRequest((group,)), DescribeGroupsResponse, timeout_ms=self._timeout_ms
        )
        (found,) = answer.groups
        error = _outcome(found.error_code, found.error_message, group).error
        if error is not None and not isinstance(error, GroupNotFound):
            return Outcome(error=error)
        return Outcome(_described(found))

    async def _delete(self, group: str) -> Outcome[bool]:
        answer = await self._coordinator(group).call_until(
            DeleteGroupsRequest((group,)), DeleteGroupsResponse, timeout_ms=self._timeout_ms
        )
        (result,) = answer.groups
        return _outcome(result.error_code, result.error_message, group)


def _outcome(code: int, sentence: str | None, about: str) -> Outcome[bool]:
    return Outcome(error=broker_error(code, sentence, about=about)) if code else Outcome(True)


def _described(group: DescribedGroup) -> GroupDescription:
    is_known = group.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group.group,
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or None,
        tuple(_described_member(member, is_known) for member in group.members),
    )


def _described_member(member: DescribedMember, is_known: bool) -> MemberDescription:
    """A member with its subscription, as far as this client can read it."""
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if is_known:
        try:
            topics = Subscription.decode(member.metadata).topics if member.metadata else ()
            assignment = decode_assigned(member.assignment)
        except WireError:
            topics, assignment = (), ()
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        topics,
        assignment,
    )
