"""Entries of access control for an operator: added, listed and removed (KIP-140).

Owns these calls of the admin client, and the numbers of the wire for their words. The active
controller answers all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import cast

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace.acls import Acl, AclFilter
from millrace.groups import Outcome
from millrace_protocol import acls as words
from millrace_protocol.messages import acls as messages

_ANY = "any"


class AclAdmin:
    """The part of the admin client that knows access control."""

    _cluster: Cluster

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, Outcome[bool]]:
        """Adds entries, each for itself; one that there is stays. Raises `BrokerError`."""
        self._check()
        wanted = [*dict.fromkeys(acls)]
        answer = await self._cluster.call(
            messages.CreateAclsRequest(tuple(map(_entry, wanted))),
            messages.CreateAclsResponse,
            to=self._cluster.controller,
        )
        outcomes: dict[Acl, Outcome[bool]] = {}
        for each, result in zip(wanted, answer.results, strict=True):
            if result.error_code:
                error = broker_error(result.error_code, result.error_message)
                outcomes[each] = Outcome(error=error)
            else:
                outcomes[each] = Outcome(True)
        return outcomes

    async def list_acls(self, chosen: AclFilter | None = None) -> list[Acl]:
        """The entries that a filter chooses, by default all, in the order of their creation."""
        self._check()
        answer = await self._cluster.call(
            messages.DescribeAclsRequest((_filter(chosen or AclFilter()),)),
            messages.DescribeAclsResponse,
            to=self._cluster.controller,
        )
        return [*map(_acl, answer.acls)]

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Removes the entries that one of the filters chooses, and returns them."""
        self._check()
        answer = await self._cluster.call(
            messages.DeleteAclsRequest(tuple(map(_filter, filters))),
            messages.DeleteAclsResponse,
            to=self._cluster.controller,
        )
        return [*dict.fromkeys(_acl(each) for result in answer.results for each in result.acls)]


def _entry(acl: Acl) -> messages.Acl:
    return messages.Acl(
        words.ResourceType[acl.resource_type.upper()],
        words.PatternType[acl.pattern.upper()],
        acl.resource_name,
        acl.principal,
        acl.host,
        words.Operation[acl.operation.upper()],
        words.Permission[acl.permission.upper()],
    )


def _filter(chosen: AclFilter) -> messages.AclFilter:
    return messages.AclFilter(
        words.ResourceType[(chosen.resource_type or _ANY).upper()],
        words.PatternType[(chosen.pattern or _ANY).upper()],
        chosen.resource_name,
        chosen.principal,
        chosen.host,
        words.Operation[(chosen.operation or _ANY).upper()],
        words.Permission[(chosen.permission or _ANY).upper()],
    )


def _acl(entry: messages.Acl) -> Acl:
    kind, pattern, name, principal, host, operation, permission = astuple(entry)
    made = (
        principal,
        words.Operation(operation).name.lower(),
        words.ResourceType(kind).name.lower(),
        name,
        words.PatternType(pattern).name.lower(),
        host,
        words.Permission(permission).name.lower(),
    )
    return Acl(*cast("tuple[str, ...]", made))  # type: ignore[arg-type]
