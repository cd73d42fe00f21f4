"""Spans of `millrace dissect` as JSON values.

Owns the names of the fields. Bytes are hexadecimal; no value loses its middle.
"""

from __future__ import annotations

from enum import Enum

from millrace_protocol.dissect import Span


def span_json(span: Span, *, is_inside: bool = False) -> dict[str, object]:
    """An object with the spans inside it as `children`.

    Positions count in the bytes of the outermost span; those of the children of a span that is
    `decompressed` count in what was decompressed.
    """
    return {
        "name": span.name,
        "type": span.type,
        "start": span.start,
        "end": span.end,
        "value": _value(span.value),
        "note": span.note or None,
        "fault": span.fault or None,
        "decompressed": is_inside and span.buffer is not None,
        "children": [span_json(child, is_inside=True) for child in span.children],
    }


def _value(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Enum) and isinstance(value, int):
        return int(value)
    return value if isinstance(value, bool | int | str | None) else str(value)
