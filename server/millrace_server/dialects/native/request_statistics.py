"""Requests of the native dialect by api, and the error codes in their responses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

from millrace_protocol.api import APIS, Listener, apis_of
from millrace_protocol.errors import ErrorCode
from millrace_protocol.primitives import ArrayOf
from millrace_protocol.schema import Message, Struct, wire_fields
from millrace_server.dialects.response_body import Body, BodyParts
from millrace_server.statistics.registry import Registry
from millrace_server.statistics.requests import ApiStatistics, ApiTable

_LABELS = {Listener.CLIENT: "native", Listener.BROKER: "between brokers"}
Results = Callable[[Any], tuple[Any, ...]]
"""The parts of a response that have an error code: elements of arrays, or the whole."""


def _has_error_code(type_: ArrayOf) -> bool:
    element = type_.element
    return isinstance(element, Struct) and "error_code" in element.cls.__dataclass_fields__


def _results_of(response: type[Message], version: int) -> Results | None:
    names = [
        name
        for name, field in wire_fields(response, version)
        if isinstance(field.type, ArrayOf) and _has_error_code(field.type)
    ]
    if "error_code" in response.__dataclass_fields__:
        each = [attrgetter(name) for name in names]
        return lambda body: (body, *chain.from_iterable(get(body) for get in each))
    if len(names) < 2:
        return attrgetter(*names) if names else None
    arrays = attrgetter(*names)
    return lambda body: tuple(chain.from_iterable(arrays(body)))


RESULTS: dict[int, Results | None] = {
    int(api.key): _results_of(api.response, api.max_version) for api in APIS.values()
}
"""Of each api, where its response has results; None for one without."""


def api_table(registry: Registry, listener: Listener) -> ApiTable[int]:
    """The apis of a listener by key."""
    names = {int(key): api.name for key, api in apis_of(listener).items()}
    return ApiTable(registry, _LABELS[listener], names)


def count_errors(counted: ApiStatistics, api: int, body: Body) -> None:
    """Counts the results of a response that are errors."""
    if type(body) is BodyParts:
        for code in body.error_codes:
            counted.count_error(code)
        return
    results_of = RESULTS[api]
    if results_of is not None:
        for result in results_of(body):
            if result.error_code:
                counted.count_error(ErrorCode(result.error_code))
