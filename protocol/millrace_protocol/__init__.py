"""The wire protocol and record batch format of millrace (`wire_spec.md`), for tools and clients.

    >>> from millrace_protocol import ApiKey, decode, encode, read_request_header, request_frame
    >>> from millrace_protocol.messages.hello import HelloRequest
    >>> body = encode(HelloRequest("my-tool", "1.0"), 0)
    >>> frame = request_frame(
    ...     api=ApiKey.HELLO, version=0, correlation_id=1, client_id=b"", body=body
    ... )
    >>> decode(HelloRequest, frame[read_request_header(frame).body_position :], 0)
    HelloRequest(software='my-tool', software_version='1.0')

A tour, from the bytes up:

| module | contents |
|---|---|
| `framing` | headers, frames, and `FrameSplitter`, which cuts a stream into frames |
| `messages` | every message as a dataclass, declared once |
| `codec` | `encode` and `decode` of message bodies |
| `api` | the apis, and `negotiate` |
| `errors` | `ErrorCode` and how a client reacts to each |
| `records` | record batches: header, validation, encoding, decoding, compression |
| `dissect` | bytes explained: streams, captures, segment files, hex |
| `spec` | the tables and examples of `wire_spec.md` |
| `schema`, `primitives` | how messages are declared |
| `generated` | the functions that are compiled from the declarations |

Nothing here does I/O. The names below are imported when they are first used, so that
`import millrace_protocol` costs nothing and a broker does not load the dissector.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace_protocol.api import APIS, Api, ApiKey, negotiate
    from millrace_protocol.codec import decode, encode
    from millrace_protocol.errors import ERROR_TRAITS, ErrorCode, ErrorTraits, WireError
    from millrace_protocol.framing import (
        FrameSplitter,
        RequestHeader,
        ResponseHeader,
        error_frame,
        read_request_header,
        read_response_header,
        request_frame,
        response_frame,
    )
    from millrace_protocol.messages.error_response import ErrorResponse
    from millrace_protocol.schema import Message

__all__ = [
    "APIS",
    "ERROR_TRAITS",
    "Api",
    "ApiKey",
    "ErrorCode",
    "ErrorResponse",
    "ErrorTraits",
    "FrameSplitter",
    "Message",
    "RequestHeader",
    "ResponseHeader",
    "WireError",
    "decode",
    "encode",
    "error_frame",
    "negotiate",
    "read_request_header",
    "read_response_header",
    "request_frame",
    "response_frame",
]

_HOMES = {
    "api": ("APIS", "Api", "ApiKey", "negotiate"),
    "codec": ("decode", "encode"),
    "errors": ("ERROR_TRAITS", "ErrorCode", "ErrorTraits", "WireError"),
    "framing": (
        "FrameSplitter",
        "RequestHeader",
        "ResponseHeader",
        "read_request_header",
        "read_response_header",
        "error_frame",
        "request_frame",
        "response_frame",
    ),
    "messages.error_response": ("ErrorResponse",),
    "schema": ("Message",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
