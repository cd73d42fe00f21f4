"""A record as a JSON object in a line, written by `consume --json`, read by `produce`.

    {"topic": "clicks", "partition": 0, "offset": 7, "timestamp_ms": 1357034400000,
     "key": "user-7", "value": {"base64": "/w=="}, "headers": [["trace", "1"], ["flag", null]]}

Owns both directions, so that the key, the value, the headers and the timestamp of a record are the
same bytes after both. UTF-8 is a JSON string, other bytes are `{"base64": ...}`, null is null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace_cli.visible_text import visible

if TYPE_CHECKING:
    from millrace.records import Headers, Record

_FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


class Envelope(NamedTuple):
    """What a producer sends of a record; None for a timestamp that is not given."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


def json_format(*, escaped: bool) -> Callable[[Record[bytes, bytes]], bytes]:
    """A function that writes a record as a line.

    With `escaped`, characters that a terminal would obey are escapes of JSON.
    """

    def line(record: Record[bytes, bytes]) -> bytes:
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
        text = json.dumps(shown, ensure_ascii=False)
        return (visible(text, json=True) if escaped else text).encode() + b"\n"

    return line


def read_envelope(line: bytes) -> Envelope:
    """The record in a line. Raises `ValueError`; the message continues a sentence about the line.

    `value` must be there. Topic, partition and offset are those that the record had, and are
    ignored.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    for name in found:
        if name not in _FIELDS:
            raise ValueError(f"has an unknown field {name!r}; there are {', '.join(_FIELDS)}")
    if "value" not in found:
        raise ValueError('has no "value"; null deletes a key')
    return Envelope(
        _bytes(found.get("key"), "key"),
        _bytes(found["value"], "value"),
        _headers(found.get("headers")),
        _timestamp_ms(found.get("timestamp_ms")),
    )


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(value: Any, name: str) -> bytes | None:
    try:
        if value is None or isinstance(value, str):
            return None if value is None else value.encode()
        if isinstance(value, dict) and list(value) == ["base64"]:
            return base64.b64decode(value["base64"], validate=True)
    except (ValueError, TypeError) as error:
        # Half of a surrogate pair, or characters outside of base64.
        raise ValueError(f"{name}: {error}") from None
    raise ValueError(f'{name}: must be text, null, or {{"base64": "..."}}')


def _headers(value: Any) -> Headers:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError('headers: must be a list of ["name", value]')
    headers = []
    for pair in value:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError('headers: must be a list of ["name", value]')
        _bytes(pair[0], "headers")
        headers.append((pair[0], _bytes(pair[1], f"header {pair[0]}")))
    return tuple(headers)


def _timestamp_ms(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"timestamp_ms: {value!r} is not milliseconds since the epoch")
    return value
