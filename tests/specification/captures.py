"""The module of captured frames: its format, and the bytes that differ between two captures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode
from millrace_protocol.framing import HEADER_SIZE, read_request_header, read_response_header
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.schema import Message
from tests.specification.session import Exchange

VARYING = frozenset(
    {
        "software_version",
        "cluster_id",
        "directory_id",
        "topic_id",
        "member_id",
        "leader",
        "client_host",
    }
    | {"commit_time_ms", "uptime_ms", "path", "total_bytes", "usable_bytes"}
)
"""Fields that each broker, or each moment, fills differently."""
_ROW_BYTES = 45
_HEAD = '''"""Frames of one session with a broker, in order: the examples of wire_spec.md.

Made by `python -m tests.specification record`; a test replays the requests against a broker and
compares the responses.
"""

from __future__ import annotations

EXCHANGES: tuple[tuple[str, str, str], ...] = (
'''
_TAIL = ''')
"""Name, request and response in hex."""


def _frames() -> dict[str, bytes]:
    frames = {}
    for name, request, response in EXCHANGES:
        if name == "error-response":
            # No reader has the version that the request asks for.
            frames[name] = bytes.fromhex(response)
            continue
        frames[f"{name}-request"] = bytes.fromhex(request)
        frames[f"{name}-response"] = bytes.fromhex(response)
    return frames


EXAMPLES = _frames()
"""Whole frames by name: `fetch-request`, `fetch-response`, ..., `error-response`."""
'''


def module_text(exchanges: Iterable[Exchange]) -> str:
    """The module with the frames."""
    return _HEAD + "".join(map(_entry, exchanges)) + _TAIL


def _entry(exchange: Exchange) -> str:
    frames = _hex(exchange.request) + _hex(exchange.response)
    return f'    (\n        "{exchange.name}",\n{frames}    ),\n'


def _hex(frame: bytes) -> str:
    starts = range(0, len(frame), _ROW_BYTES)
    rows = [f'        "{frame[start : start + _ROW_BYTES].hex()}"' for start in starts]
    return "\n".join(rows) + ",\n"


def masked(frame: bytes, *, is_request: bool) -> tuple[Any, ...]:
    """The frame without what varies: the header's fields, and those of the body."""
    if is_request:
        request = read_request_header(frame)
        body = frame[request.body_position :]
        cls: type[Message] = APIS[ApiKey(request.api)].request
        head = (request.api, request.version, request.correlation_id)
        return (*head, _masked(decode(cls, body, 0)))
    response = read_response_header(frame)
    cls = ErrorResponse if response.error_code else APIS[ApiKey(response.api)].response
    head = (response.api, response.version, response.correlation_id)
    return (*head, response.error_code, _masked(decode(cls, frame[HEADER_SIZE:], 0)))


def _masked(value: Any) -> Any:
    if isinstance(value, Message):
        return {
            field.name: "varies" if field.name in VARYING else _masked(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [_masked(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value
