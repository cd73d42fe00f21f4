"""Whether a broker did nothing of a request because another one is the active controller.

A broker passes such a request on to the controller. A broker that is cut off, or whose disk is
full, may not know the active controller; another broker does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message


def is_from_no_controller(response: Message) -> bool:
    """Whether every result in a response is NOT_CONTROLLER; False without results."""
    codes = {*_error_codes(response)}
    return codes == {ErrorCode.NOT_CONTROLLER}


def _error_codes(response: Message) -> Iterator[int]:
    """The response's own code, if it has one, and those of the results in its arrays."""
    for field in fields(response):
        value = getattr(response, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, tuple):
            for each in value:
                code = getattr(each, "error_code", None)
                if code is not None:
                    yield code
