"""How records and bytes look in the text dialect, and how a typed line is read (W-8.2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from millrace_protocol.records import Record
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Response

Lines = list[str]

ANSWER_CHARACTERS = 256 << 10
"""An answer of many lines ends with the line that reaches this, and tells how much is left out."""
VALUE_BYTES_SHOWN = 4 << 10
"""A longer key or value is cut in the answer, and its size is shown."""
HEADER_BYTES_SHOWN = 256
"""The same for the name and the content of a header, of which a record may have many."""
HEADERS_SHOWN = 16
"""The same for how many headers of one record are shown. When all of a record has to be escaped,
16 KiB at most, its line takes 1 ms, in which no other request is answered."""


def shown(data: bytes | None, *, bytes_max: int = VALUE_BYTES_SHOWN) -> str:
    """Bytes as one line: UTF-8 with control characters, backslashes and bad bytes escaped.

    >>> shown(b"caf\\xc3\\xa9\\n\\xff"), shown(None)
    ('café\\\\n\\\\xff', '(null)')
    """
    if data is None:
        return "(null)"
    cut = ""
    if len(data) > bytes_max:
        cut = f"... ({len(data)} bytes)"
        data = data[:bytes_max]
    text = data.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape")
    if not text.isprintable():
        text = text.translate(_ESCAPES)
        if not text.isprintable():
            text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    return text + cut


def word(text: str) -> str:
    """A name as one word, for lines whose words are columns.

    >>> word("my group")
    'my\\\\x20group'
    """
    return shown(text.encode("utf-8", "surrogateescape")).replace(" ", r"\x20")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


_ESCAPES = {code: _escaped(chr(code)) for code in range(256) if not chr(code).isprintable()} | {
    0xDC00 + byte: f"\\x{byte:02x}" for byte in range(128, 256)
}
"""Control characters and bytes that are no UTF-8 (as `surrogateescape` marks them) by a table: one
by one, or through the handler of errors, sixteen KiB of them took 2 to 8 ms."""


_SURROGATE = re.compile(r"(?<!\\)\\udc([89a-f][0-9a-f])")


def _byte_shown(match: re.Match[str]) -> str:
    return f"\\x{match[1]}"


def timestamp_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, or the number where a calendar has no such day."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_line(record: Record) -> str:
    """One record as one line: offset, time, key, headers if any, and the value last."""
    offset, timestamp_ms, key, value, headers = record
    listed = "".join(
        f" header {_in_short(name.encode())}={_in_short(content)}"
        for name, content in headers[:HEADERS_SHOWN]
    )
    if len(headers) > HEADERS_SHOWN:
        listed += f" ... ({len(headers)} headers)"
    return (
        f"offset {offset} time {timestamp_text(timestamp_ms)} key {shown(key)}{listed} "
        f"value {shown(value)}"
    )


def _in_short(data: bytes | None) -> str:
    return shown(data, bytes_max=HEADER_BYTES_SHOWN)


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "record"), counted(2, "record")
    ('1 record', '2 records')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def error_line(refused: ApiError) -> str:
    """A refusal as the last line of an answer.

    A sentence quotes what was typed with `repr`, which shows a byte that is no UTF-8 as the
    surrogate that stands for it; the line shows the byte.
    """
    return f"ERR {refused.code.name} {_SURROGATE.sub(_byte_shown, refused.message)}"


def encoded(lines: list[str]) -> Response:
    """Lines as they go out."""
    return [("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")]
