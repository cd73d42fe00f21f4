"""Changes of the cluster that an operator asks for: replicas that move, on the active controller.

Plain values in and out, over the rules of `metadata` and the commits of the active controller. The
handlers pass requests on from the brokers that are not the active controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.applier import NotApplied
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage, PartitionRegistration
from millrace_server.metadata.partition_changes import PartitionDecisions
from millrace_server.metadata.reassignments import Reassignment, reassign

log = get_logger("millrace.controller")


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition that is being reassigned."""

    topic: str
    number: int
    partition: PartitionRegistration


class AdministrationService:
    """Works on the active controller. Its methods raise `ApiError` for a request as a whole."""

    def __init__(
        self, active: ActiveController, cache: MetadataCache, defaults: Mapping[str, str]
    ) -> None:
        self._active = active
        self._cache = cache
        self._defaults = defaults

    async def reassign(
        self, wanted: Sequence[Reassignment], *, may_replace: bool
    ) -> Sequence[ApiError | None]:
        """Begins, replaces or cancels reassignments; the refusal of each, None for a success."""
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

    async def reassignments(self, topics: Collection[str] | None) -> list[Ongoing]:
        """What is being reassigned, by topic and number; None is all topics."""
        image = await self._active.change(_no_records)
        return [
            Ongoing(name, number, partition)
            for name in sorted(image.topics if topics is None else set(topics) & {*image.topics})
            for number, partition in enumerate(image.topics[name].partitions)
            if partition.adding or partition.removing
        ]

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
