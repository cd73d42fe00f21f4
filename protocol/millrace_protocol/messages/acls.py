"""CreateAcls, DescribeAcls, DeleteAcls: entries of access control."""

from __future__ import annotations

from millrace_protocol.primitives import INT8, INT16, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

_RESOURCE_TYPES = "2 topic, 3 group, 4 cluster, 5 transactional id, 7 user"
_OPERATIONS = (
    "2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, "
    "10 describe configs, 11 alter configs, 12 idempotent write"
)


@message
class Acl(Message):
    """An entry: one operation, allowed or denied to one principal from one host."""

    resource_type: int = wire(INT8, _RESOURCE_TYPES)
    pattern_type: int = wire(INT8, "3: the resource of that name; 4: all that begin with it")
    resource_name: str = wire(STRING, "the name or its beginning; `*` with 3: all of the type")
    principal: str = wire(STRING, "`User:NAME`; `User:*`: all")
    host: str = wire(STRING, "the client's IP address; `*`: all")
    operation: int = wire(INT8, _OPERATIONS)
    permission: int = wire(INT8, "2: it is denied; 3: it is allowed")


@message
class AclFilter(Message):
    """Chooses entries: those that agree with every field. 1 and null agree with everything."""

    resource_type: int = wire(INT8, f"1 any; {_RESOURCE_TYPES}")
    pattern_type: int = wire(
        INT8, "1 any; 3, 4; 2: each pattern that a resource of that name matches"
    )
    resource_name: str | None = wire(NULLABLE_STRING, "the name of the pattern")
    principal: str | None = wire(NULLABLE_STRING, "the principal")
    host: str | None = wire(NULLABLE_STRING, "the host")
    operation: int = wire(INT8, f"1 any; {_OPERATIONS}")
    permission: int = wire(INT8, "1 any; 2, 3")


@message
class AclResult(Message):
    """The result of one entry."""

    error_code: int = wire(INT16, "error of this entry (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class CreateAclsRequest(Request):
    """Adds entries, each for itself. One that is there stays."""

    acls: tuple[Acl, ...] = wire(array_of(Acl), "the entries")


@message
class CreateAclsResponse(Message):
    """One result per entry."""

    results: tuple[AclResult, ...] = wire(array_of(AclResult), "the results")


@message
class DescribeAclsRequest(Request):
    """Asks for the entries that one of the filters chooses."""

    filters: tuple[AclFilter, ...] = wire(array_of(AclFilter), "the filters")


@message
class DescribeAclsResponse(Message):
    """The entries, in the order in which they were added."""

    acls: tuple[Acl, ...] = wire(array_of(Acl), "the entries")


@message
class DeleteAclsRequest(Request):
    """Removes the entries that filters choose."""

    filters: tuple[AclFilter, ...] = wire(array_of(AclFilter), "the filters")


@message
class DeletedAcls(Message):
    """What one filter has removed."""

    acls: tuple[Acl, ...] = wire(array_of(Acl), "the entries")


@message
class DeleteAclsResponse(Message):
    """One result per filter. An entry that several filters choose is in the result of each."""

    results: tuple[DeletedAcls, ...] = wire(array_of(DeletedAcls), "the results")
