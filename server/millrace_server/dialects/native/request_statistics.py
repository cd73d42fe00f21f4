"""Requests of the native dialect by api, and the error codes in their responses."""

from __future__ import annotations

from millrace_protocol.api import APIS
from millrace_protocol.errors import ErrorCode
from millrace_protocol.primitives import ArrayOf
from millrace_protocol.schema import Struct, wire_fields
from millrace_server.dialects.native.response_body import Body, BodyParts
from millrace_server.statistics.registry import Registry
from millrace_server.statistics.requests import ApiStatistics, ApiTable

DIALECT = "native"


def _has_error_code(type_: ArrayOf) -> bool:
    element = type_.element
    return isinstance(element, Struct) and "error_code" in element.cls.__dataclass_fields__


RESULTS: dict[int, tuple[str, ...]] = {
    int(api.key): tuple(
        name
        for name, field in wire_fields(api.response, api.max_version)
        if isinstance(field.type, ArrayOf) and _has_error_code(field.type)
    )
    for api in APIS.values()
}
"""Of each api, the arrays of its response whose elements have an error code."""


def api_table(registry: Registry) -> ApiTable[int]:
    """The apis by key."""
    return ApiTable(registry, DIALECT, {int(api.key): api.name for api in APIS.values()})


def count_errors(counted: ApiStatistics, api: int, body: Body) -> None:
    """Counts the results of a response that are errors."""
    if isinstance(body, BodyParts):
        for code in body.error_codes:
            counted.count_error(code)
        return
    for name in RESULTS[api]:
        for result in getattr(body, name):
            if result.error_code:
                counted.count_error(ErrorCode(result.error_code))
