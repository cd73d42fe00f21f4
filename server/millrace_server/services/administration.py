"""Changes of the cluster that an operator asks for: of replicas, leaders and brokers.

They are made on the active controller, and another broker asks it. Plain values in and out, over
the rules of `metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.acls import Operation
from millrace_protocol.metadata_records import NO_LEADER, MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.applier import NotApplied
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.leader_election import elect_leaders, partitions_to_elect
from millrace_server.metadata.partition_changes import Election, PartitionDecisions
from millrace_server.metadata.reassignments import Reassignment, reassign
from millrace_server.metadata.retirement import replica_count, retire_broker
from millrace_server.services.forwarded_administration import (
    Elected,
    ForwardedAdministration,
    Ongoing,
)
from millrace_server.services.quorum import QuorumService, QuorumState
from millrace_server.services.request_context import RequestContext

log = get_logger("millrace.controller")


@dataclass(frozen=True, slots=True)
class Retirement:
    """The replicas that a broker still has; `is_retired`: it is unregistered."""

    replicas: int
    is_retired: bool


class AdministrationService:
    """Its methods raise `ApiError` for a request as a whole."""

    def __init__(
        self,
        active: ActiveController,
        cache: MetadataCache,
        defaults: Mapping[str, str],
        controller: ControllerCalls,
        quorum: QuorumService,
    ) -> None:
        self._quorum = quorum
        self._controller = controller
        self._forwarded = ForwardedAdministration(controller)
        self._active = active
        self._cache = cache
        self._defaults = defaults

    async def reassign(
        self, context: RequestContext, wanted: Sequence[Reassignment], *, may_replace: bool
    ) -> Sequence[ApiError | None]:
        """Begins, replaces or cancels reassignments; the refusal of each, None for a success."""
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            return await self._forwarded.reassign(wanted, may_replace=may_replace)
        refused = await self._decide(
            lambda image: reassign(image, self._defaults, wanted, may_replace=may_replace)
        )
        for each, error in zip(wanted, refused, strict=True):
            if error is None:
                log.info(
                    "reassignment cancelled" if each.replicas is None else "partition reassigned",
                    topic=each.topic,
                    partition=each.partition,
                    replicas=each.replicas,
                )
        return refused

    async def reassignments(
        self, context: RequestContext, topics: Collection[str] | None
    ) -> list[Ongoing]:
        """What is being reassigned, by topic and number; None is all topics."""
        context.check_cluster(Operation.DESCRIBE)
        if not self._controller.is_here:
            return await self._forwarded.reassignments(topics)
        image = await self._active.change(_no_records)
        return [
            Ongoing(
                name,
                number,
                partition.replicas,
                partition.adding,
                partition.removing,
                partition.isr,
            )
            for name in sorted(image.topics if topics is None else set(topics) & {*image.topics})
            for number, partition in enumerate(image.topics[name].partitions)
            if partition.adding or partition.removing
        ]

    async def elect(
        self,
        context: RequestContext,
        wanted: Sequence[tuple[str, int]] | None,
        election: Election,
    ) -> list[Elected]:
        """Elects a leader of each partition; None is all that need the election."""
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            return await self._forwarded.elect(wanted, election)
        chosen = list(wanted or ())

        def decide(image: ClusterImage) -> PartitionDecisions:
            if wanted is None:
                chosen[:] = partitions_to_elect(image, election)
            return elect_leaders(image, self._defaults, chosen, election)

        refused = await self._decide(decide)
        image = self._cache.image
        elected: list[Elected] = []
        for (topic, number), error in zip(chosen, refused, strict=True):
            known = image.topics.get(topic)
            leader = NO_LEADER
            if error is None and known is not None:
                leader = known.partitions[number].leader
                log.info("leader elected", topic=topic, partition=number, leader=leader)
            elected.append(Elected(topic, number, leader, error))
        return elected

    async def quorum(self, context: RequestContext) -> QuorumState:
        """The replicas of the metadata log, as the active controller sees them."""
        context.check_cluster(Operation.DESCRIBE)
        if not self._controller.is_here:
            return await self._forwarded.quorum()
        return self._quorum.describe(context)

    async def retire(self, context: RequestContext, broker_id: int) -> Retirement:
        """Takes the next step of a retirement."""
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            return Retirement(*await self._forwarded.retire(broker_id))
        try:
            image = await self._active.change(
                lambda image: retire_broker(image, self._defaults, broker_id)
            )
        except NotApplied as error:
            log.warning("replicas not created yet", reason=error.message)
            image = self._cache.image
        is_retired = broker_id not in image.brokers
        if is_retired:
            log.info("broker retired", broker=broker_id)
        return Retirement(replica_count(image, broker_id), is_retired)

    async def _decide(
        self, decide: Callable[[ClusterImage], PartitionDecisions]
    ) -> Sequence[ApiError | None]:
        """Commits what is allowed; the refusal of each partition."""
        refused: Sequence[ApiError | None] = ()

        def records(image: ClusterImage) -> Iterable[MetadataRecord]:
            nonlocal refused
            decided = decide(image)
            refused = decided.refused
            return decided.records

        try:
            await self._active.change(lambda image: [*records(image)])
        except NotApplied as error:
            # It is committed, and this broker tries again to create its new replicas.
            log.warning("replicas not created yet", reason=error.message)
        return refused


def _no_records(image: ClusterImage) -> Sequence[MetadataRecord]:
    """A change that only waits for all that was committed before."""
    return ()
