"""Replicas for an operator: on which brokers they are, and which of them leads.

Owns these calls of the admin client. The active controller answers all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace._cluster.cluster import Cluster
from millrace.brokers import Reassignment
from millrace.errors import broker_error
from millrace.groups import Outcome
from millrace.records import TopicPartition
from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionReassignment,
)


class ReplicaAdmin:
    """The part of the admin client that moves replicas and leaders."""

    _cluster: Cluster

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition | tuple[str, int], Iterable[int] | None],
        *,
        replace: bool = False,
    ) -> dict[TopicPartition, Outcome[bool]]:
        """Begins to move each partition to these brokers, the preferred leader first.

        None cancels the reassignment in progress. The new replicas catch up while the old ones
        serve, and then the old ones are removed: `list_partition_reassignments` says how far that
        is. The same reassignment again changes nothing. An outcome's error is
        `ReassignmentInProgress` for another one, unless `replace` is true,
        `InvalidReplicaAssignment`, `NoReassignmentInProgress` or `UnknownTopicOrPartition`.
        """
        self._check()
        wanted = {TopicPartition(*where): brokers for where, brokers in replicas.items()}
        request = AlterPartitionReassignmentsRequest(
            tuple(
                PartitionReassignment(*where, None if brokers is None else tuple(brokers))
                for where, brokers in wanted.items()
            ),
            replace,
        )
        answer = await self._cluster.call(
            request, AlterPartitionReassignmentsResponse, to=self._cluster.controller
        )
        return {
            where: _outcome(result.error_code, result.error_message, where)
            for where, result in zip(wanted, answer.partitions, strict=True)
        }

    async def list_partition_reassignments(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress; None is all topics."""
        self._check()
        answer = await self._cluster.call(
            ListPartitionReassignmentsRequest(None if topics is None else tuple(topics)),
            ListPartitionReassignmentsResponse,
            to=self._cluster.controller,
        )
        return {
            TopicPartition(each.topic, each.partition): Reassignment(
                each.replicas, each.adding_replicas, each.removing_replicas, each.isr
            )
            for each in answer.partitions
        }


def _outcome(code: int, message: str | None, where: TopicPartition) -> Outcome[bool]:
    if code:
        return Outcome(error=broker_error(code, message, about=str(where)))
    return Outcome(True)
