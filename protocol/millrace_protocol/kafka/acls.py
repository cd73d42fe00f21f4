"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31): access control (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class DescribeAclsRequest(KafkaRequest):
    """Asks for the entries that a filter chooses."""

    flexible_since: ClassVar[int | None] = 2

    resource_type_filter: int = wire(INT8, "type of the resource")
    resource_name_filter: str | None = wire(NULLABLE_STRING, "name of the pattern; null: any")
    pattern_type_filter: int = wire(INT8, "how the name is compared")
    principal_filter: str | None = wire(NULLABLE_STRING, "the principal; null: any")
    host_filter: str | None = wire(NULLABLE_STRING, "the host; null: any")
    operation: int = wire(INT8, "the operation")
    permission_type: int = wire(INT8, "denied or allowed")


@message
class AclDescription(Message):
    """An entry of a resource pattern."""

    principal: str = wire(STRING, "the principal")
    host: str = wire(STRING, "the host")
    operation: int = wire(INT8, "the operation")
    permission_type: int = wire(INT8, "denied or allowed")


@message
class DescribeAclsResource(Message):
    """A resource pattern with its entries."""

    resource_type: int = wire(INT8, "type of the resource")
    resource_name: str = wire(STRING, "name of the pattern")
    pattern_type: int = wire(INT8, "how the name is compared")
    acls: tuple[AclDescription, ...] = wire(array_of(AclDescription), "the entries")


@message
class DescribeAclsResponse(Message):
    """The entries."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    resources: tuple[DescribeAclsResource, ...] = wire(
        array_of(DescribeAclsResource), "the patterns", default=()
    )


@message
class AclCreation(Message):
    """An entry to add."""

    resource_type: int = wire(INT8, "type of the resource")
    resource_name: str = wire(STRING, "name of the pattern")
    resource_pattern_type: int = wire(INT8, "how the name is compared")
    principal: str = wire(STRING, "the principal")
    host: str = wire(STRING, "the host")
    operation: int = wire(INT8, "the operation")
    permission_type: int = wire(INT8, "denied or allowed")


@message
class CreateAclsRequest(KafkaRequest):
    """Adds entries."""

    flexible_since: ClassVar[int | None] = 2

    creations: tuple[AclCreation, ...] = wire(array_of(AclCreation), "the entries")


@message
class AclCreationResult(Message):
    """The result of one entry."""

    error_code: int = wire(INT16, "error of the entry")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)


@message
class CreateAclsResponse(Message):
    """One result per entry."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    results: tuple[AclCreationResult, ...] = wire(
        array_of(AclCreationResult), "the results", default=()
    )


@message
class DeleteAclsFilter(Message):
    """Chooses entries to remove."""

    resource_type_filter: int = wire(INT8, "type of the resource")
    resource_name_filter: str | None = wire(NULLABLE_STRING, "name of the pattern; null: any")
    pattern_type_filter: int = wire(INT8, "how the name is compared")
    principal_filter: str | None = wire(NULLABLE_STRING, "the principal; null: any")
    host_filter: str | None = wire(NULLABLE_STRING, "the host; null: any")
    operation: int = wire(INT8, "the operation")
    permission_type: int = wire(INT8, "denied or allowed")


@message
class DeleteAclsRequest(KafkaRequest):
    """Removes the entries that filters choose."""

    flexible_since: ClassVar[int | None] = 2

    filters: tuple[DeleteAclsFilter, ...] = wire(array_of(DeleteAclsFilter), "the filters")


@message
class DeleteAclsMatchingAcl(Message):
    """An entry that is removed."""

    error_code: int = wire(INT16, "error of the entry", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    resource_type: int = wire(INT8, "type of the resource", default=0)
    resource_name: str = wire(STRING, "name of the pattern", default="")
    pattern_type: int = wire(INT8, "how the name is compared", default=3)
    principal: str = wire(STRING, "the principal", default="")
    host: str = wire(STRING, "the host", default="")
    operation: int = wire(INT8, "the operation", default=0)
    permission_type: int = wire(INT8, "denied or allowed", default=0)


@message
class DeleteAclsFilterResult(Message):
    """What one filter has removed."""

    error_code: int = wire(INT16, "error of the filter", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(
        array_of(DeleteAclsMatchingAcl), "the entries", default=()
    )


@message
class DeleteAclsResponse(Message):
    """One result per filter."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(
        array_of(DeleteAclsFilterResult), "the results", default=()
    )
