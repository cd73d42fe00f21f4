"""Records as the page shows them, and which of them it wants.

Owns filters, decoding and the bounds of what is shown. Bytes become text here, and nothing else:
the page inserts it as text, never as markup.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.records import Record
from millrace_console.errors import InputError
from millrace_protocol.dissect import Limits, render
from millrace_protocol.dissect.batches import dissect_batch
from millrace_protocol.records.header import batch_ranges

AnyRecord = Record[bytes, bytes]
TAIL_BYTES_MAX = 2 * 1024
"""Bytes of a key, a value or a header that the tail shows."""
RECORD_BYTES_MAX = 256 * 1024
"""The same for a record that is looked at alone."""
HEADERS_MAX = 50
DISSECTED_LINES_MAX = 400
_LIMITS = Limits(elements_max=50, records_max=50, batches_max=1, decompressed_bytes_max=4 << 20)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are wanted: those that have all of these. Empty: any.

    `text` is a part of the key or the value. `header` is a name, or NAME=PART with a part of its
    value.
    """

    text: bytes = b""
    header: str = ""
    header_part: bytes = b""

    @classmethod
    def of(cls, text: str, header: str) -> RecordFilter:
        """A filter as it is typed. Raises `InputError`."""
        name, equals, part = header.partition("=")
        if equals and not name:
            raise InputError("header: name a header, as NAME or NAME=PART")
        return cls(text.encode(), name, part.encode())

    def matches(self, record: AnyRecord) -> bool:
        """Whether a record is wanted."""
        if self.text and self.text not in (record.key or b"") + b"\0" + (record.value or b""):
            return False
        return not self.header or any(
            name == self.header and self.header_part in (value or b"")
            for name, value in record.headers
        )


def view(record: AnyRecord, bytes_max: int) -> dict[str, Any]:
    """A record as an object of JSON; each part of it has at most `bytes_max` bytes."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": shown(record.key, bytes_max),
        "value": shown(record.value, bytes_max),
        "headers": [
            {"name": name[:200], "value": shown(value, bytes_max)}
            for name, value in record.headers[:HEADERS_MAX]
        ],
        "headers_cut": max(0, len(record.headers) - HEADERS_MAX),
    }


def shown(data: bytes | None, bytes_max: int) -> dict[str, Any] | None:
    """Bytes as text, if they are UTF-8, and else as hex; None for null.

    `size` is that of all bytes, `cut` says that not all are shown. `json` is the text indented, if
    it is whole and an object or a list.
    """
    if data is None:
        return None
    part = data[:bytes_max]
    is_cut = len(part) < len(data)
    found: dict[str, Any] = {"size": len(data), "cut": is_cut}
    text = _text(part, is_cut=is_cut)
    if text is None:
        return {**found, "hex": part[: bytes_max // 4].hex(" "), "cut": len(data) > bytes_max // 4}
    pretty = None if is_cut else _pretty(text)
    return {**found, "text": text} if pretty is None else {**found, "text": text, "json": pretty}


def hex_dump(data: bytes | None, bytes_max: int) -> list[str]:
    """Lines of sixteen bytes: position, hex, and what is printable.

    >>> hex_dump(b"ab\\0", 100)
    ['00000000  61 62 00                                         ab.']
    """
    part = (data or b"")[:bytes_max]
    lines = []
    for start in range(0, len(part), 16):
        row = part[start : start + 16]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {printable}")
    return lines


def dissected(batches: memoryview, offset: int) -> list[str]:
    """The lines of the dissector for the batch that has an offset; none if no batch has it."""
    for position, end, base_offset, last_offset in batch_ranges(batches):
        if base_offset <= offset <= last_offset:
            batch = bytes(batches[position:end])
            span = dissect_batch(batch, 0, len(batch), name="batch", limits=_LIMITS)
            lines: list[str] = []
            for line in render([span], batch):
                if len(lines) == DISSECTED_LINES_MAX:
                    return [*lines, f"... cut after {DISSECTED_LINES_MAX} lines"]
                lines.append(line)
            return lines
    return []


def parsed_record(body: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `Producer.send` from an object of the page. Raises `InputError`.

    `key` and `value` are text or null, `key_base64` and `value_base64` bytes. `headers` is an
    object of texts, `partition` a number or null.
    """
    partition = body.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise InputError("partition: give a number, or nothing for the partitioner's choice")
    headers = body.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise InputError("headers: give an object of texts, such as {'source': 'console'}")
    return {
        "key": _bytes(body, "key"),
        "value": _bytes(body, "value"),
        "partition": partition,
        "headers": tuple((str(name), value.encode()) for name, value in headers.items()),
    }


def _bytes(body: Mapping[str, Any], name: str) -> bytes | None:
    text, encoded = body.get(name), body.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise InputError(f"{name}_base64: is not base64") from None
    if text is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{name}: give a text, or null")
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """UTF-8 without control characters; a character that the cut halves is left out."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    has_controls = any(ord(c) < 32 and c not in "\n\r\t" for c in text)
    return None if has_controls else text


def _pretty(text: str) -> str | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
