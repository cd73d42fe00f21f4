"""Replicas for an operator: on which brokers they are, and which of them leads.

Owns these calls of the admin client. The active controller answers all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace.brokers import Reassignment, Retirement
from millrace.groups import Outcome
from millrace.records import TopicPartition
from millrace_protocol.messages.elections import (
    ElectionPartition,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionReassignment,
)
from millrace_protocol.messages.retirement import RetireBrokerRequest, RetireBrokerResponse


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

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        unclean: bool = False,
    ) -> dict[TopicPartition, Outcome[int]]:
        """Elects the first replica of each partition as its leader; the value is the new leader.

        None is every partition that another broker leads. With `unclean` it is about partitions
        without a leader: any replica leads, and records that it does not have are lost. An
        outcome's error is `ElectionNotNeeded`, `LeaderNotAvailable` while no such replica is in
        sync, or in service, or `UnknownTopicOrPartition`.
        """
        self._check()
        wanted = None
        if partitions is not None:
            wanted = tuple(ElectionPartition(*where) for where in partitions)
        answer = await self._cluster.call(
            ElectLeadersRequest(wanted, unclean),
            ElectLeadersResponse,
            to=self._cluster.controller,
        )
        found: dict[TopicPartition, Outcome[int]] = {}
        for each in answer.partitions:
            where = TopicPartition(each.topic, each.partition)
            if each.error_code:
                error = broker_error(each.error_code, each.error_message, about=str(where))
                found[where] = Outcome(error=error)
            else:
                found[where] = Outcome(each.leader_id)
        return found

    async def retire_broker(self, broker: int) -> Retirement:
        """Takes the next step of a broker's retirement; to be repeated until it is retired.

        All its replicas move to other brokers, to each about as many, which
        `list_partition_reassignments` shows. A broker without replicas is unregistered when it is
        stopped. Raises `BrokerNotRegistered`, `InvalidReplicaAssignment` where a partition has no
        other broker to go to, and `InvalidRequest` for the last broker, for a voter of the
        metadata quorum, and for a broker without replicas that is in service.
        """
        self._check()
        answer = await self._cluster.call(
            RetireBrokerRequest(broker), RetireBrokerResponse, to=self._cluster.controller
        )
        if answer.error_code:
            raise broker_error(answer.error_code, answer.error_message, about=f"broker {broker}")
        return Retirement(broker, answer.replicas, answer.is_retired)


def _outcome(code: int, message: str | None, where: TopicPartition) -> Outcome[bool]:
    if code:
        return Outcome(error=broker_error(code, message, about=str(where)))
    return Outcome(True)
