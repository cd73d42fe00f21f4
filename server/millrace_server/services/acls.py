"""Entries of access control: added, listed and removed (KIP-140).

Plain values in and out, over the rules of `metadata.acls`. A change is made on the active
controller, and another broker asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import acls as messages
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.logs import get_logger
from millrace_server.metadata.acls import (
    AclEntry,
    EntryNumbers,
    FilterNumbers,
    create_acls,
    delete_acls,
    entry_of,
    filter_of,
    matching_acls,
)
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.peers.calls import outcome
from millrace_server.services.authorizer import Authorizer
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.request_context import RequestContext

log = get_logger("millrace.controller")


class AclService:
    """Its methods raise `ApiError` for a request as a whole, on a broker without authorization too.

    Where another broker is the active controller, this one knows of a change a moment later.
    """

    def __init__(
        self,
        active: ActiveController,
        cache: MetadataCache,
        controller: ControllerCalls,
        authorizer: Authorizer,
    ) -> None:
        self._active = active
        self._cache = cache
        self._controller = controller
        self._authorizer = authorizer

    def describe(self, context: RequestContext, filters: Sequence[FilterNumbers]) -> list[AclEntry]:
        """The entries that one of the filters chooses."""
        self._check(context, Operation.DESCRIBE)
        known, chosen = self._cache.image.acls, map(filter_of, filters)
        return [*dict.fromkeys(entry for each in chosen for entry in matching_acls(known, each))]

    async def create(
        self, context: RequestContext, entries: Sequence[EntryNumbers]
    ) -> Sequence[ApiError | None]:
        """Adds entries; the refusal of each, None for a success."""
        self._check(context, Operation.ALTER)
        if not self._controller.is_here:
            return await self._forward_creation(entries)
        refused: Sequence[ApiError | None] = ()

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            nonlocal refused
            decided = create_acls(image.acls, entries)
            refused = decided.refused
            return decided.records

        await self._active.change(decide)
        for entry, error in zip(entries, refused, strict=True):
            if error is None:
                log.info(
                    "access control entry added", by=context.principal, **_logged(entry_of(entry))
                )
        return refused

    async def delete(
        self, context: RequestContext, filters: Sequence[FilterNumbers]
    ) -> list[list[AclEntry]]:
        """Removes what each filter chooses, and returns it."""
        self._check(context, Operation.ALTER)
        chosen = [*map(filter_of, filters)]
        if not self._controller.is_here:
            return await self._forward_deletion(filters)
        removed: list[list[AclEntry]] = []

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            removed[:] = [matching_acls(image.acls, each) for each in chosen]
            return delete_acls(image.acls, chosen)

        await self._active.change(decide)
        for entry in dict.fromkeys(entry for found in removed for entry in found):
            log.info("access control entry removed", by=context.principal, **_logged(entry))
        return removed

    def _check(self, context: RequestContext, operation: Operation) -> None:
        context.check_cluster(operation)
        if not self._authorizer.is_on:
            raise ApiError(ErrorCode.SECURITY_DISABLED)

    async def _forward_creation(self, entries: Sequence[EntryNumbers]) -> list[ApiError | None]:
        request = messages.CreateAclsRequest(tuple(messages.Acl(*each) for each in entries))
        response = await self._controller.forward(
            request, messages.CreateAclsResponse, timeout_ms=FORWARD_TIMEOUT_MS
        )
        return [outcome(each.error_code, each.error_message) for each in response.results]

    async def _forward_deletion(self, filters: Sequence[FilterNumbers]) -> list[list[AclEntry]]:
        request = messages.DeleteAclsRequest(tuple(messages.AclFilter(*each) for each in filters))
        response = await self._controller.forward(
            request, messages.DeleteAclsResponse, timeout_ms=FORWARD_TIMEOUT_MS
        )
        return [[entry_of(astuple(acl)) for acl in each.acls] for each in response.results]


def _logged(entry: AclEntry) -> dict[str, str]:
    return {
        "resource_type": entry.resource_type.name,
        "pattern_type": entry.pattern_type.name,
        "resource": entry.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }
