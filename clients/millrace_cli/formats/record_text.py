r"""Records as bytes for stdout, by format strings like kcat's.

    %t topic      %o offset             %k key    %K its size, -1 for null
    %p partition  %T timestamp in ms    %s value  %S its size, -1 for null
    %h headers, name=value,...          %R the value's size as a 32-bit big-endian integer
    %% a percent sign                   \n \t \r \0 \\ \xHH escapes

Keys, values and headers are written byte by byte as they are. Escaped, bytes that are not UTF-8 and
characters that a terminal would obey become `\xHH`, so that a record cannot send control sequences.
Null is empty, or the text that the caller gives.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from millrace.records import Record, RecordBatch
from millrace_cli.visible_text import visible

AnyRecord = Record[bytes, bytes]
Formatter = Callable[[AnyRecord], bytes]
"""The bytes of a record, for stdout."""

_PIECES = re.compile(r"%(?P<field>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_SIZE = struct.Struct(">i")


class FormatError(ValueError):
    """A format string that cannot be used."""


def records_before(batch: RecordBatch[bytes, bytes], end: int | None) -> list[AnyRecord]:
    """The records of a batch with offsets below `end`; all of them for None."""
    if end is None or batch.next_offset <= end:
        return list(batch)
    return [record for record in batch if record.offset < end]


def record_format(format_: str, *, escaped: bool, null: bytes = b"") -> Formatter:
    """A function that formats a record by a format string. Raises `FormatError`."""
    shown = _escaped if escaped else bytes
    pieces: list[bytes | Formatter] = []
    for piece in _PIECES.finditer(format_):
        if (letter := piece["field"]) is not None:
            pieces.append(_field(letter, shown, null))
        elif (escape := piece["escape"]) is not None:
            pieces.append(_escape(escape))
        else:
            pieces.append(piece[0].encode())
    template = b"".join(b"%b" if callable(p) else p.replace(b"%", b"%%") for p in pieces)
    fields = tuple(piece for piece in pieces if callable(piece))
    if len(fields) == 1:
        only = fields[0]
        return lambda record: template % only(record)
    return lambda record: template % tuple(field(record) for field in fields)


def unescaped(text: str) -> bytes:
    r"""The bytes of a text with the escapes of a format string. Raises `FormatError`.

    >>> unescaped(r"\r\n"), unescaped(r"a\x00")
    (b'\r\n', b'a\x00')
    """
    pieces = re.finditer(r"\\(?P<escape>x[0-9a-fA-F]{2}|.?)|[^\\]+", text, re.DOTALL)
    return b"".join(
        piece[0].encode() if piece["escape"] is None else _escape(piece["escape"])
        for piece in pieces
    )


def _field(letter: str, shown: Callable[[bytes], bytes], null: bytes) -> bytes | Formatter:
    def text(data: bytes | None) -> bytes:
        return null if data is None else shown(data)

    match letter:
        case "%":
            return b"%"
        case "t":
            return lambda record: record.topic.encode()
        case "p":
            return lambda record: b"%d" % record.partition
        case "o":
            return lambda record: b"%d" % record.offset
        case "T":
            return lambda record: b"%d" % record.timestamp_ms
        case "k":
            return lambda record: text(record.key)
        case "s":
            return lambda record: text(record.value)
        case "K":
            return lambda record: b"%d" % _size(record.key)
        case "S":
            return lambda record: b"%d" % _size(record.value)
        case "R":
            return lambda record: _SIZE.pack(_size(record.value))
        case "h":
            return lambda record: b",".join(
                shown(name.encode()) + b"=" + text(value) for name, value in record.headers
            )
    raise FormatError(f"%{letter}: unknown field; use %t %p %o %T %k %s %K %S %R %h %%")


def _escape(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise FormatError(f"\\{escape}: unknown escape; use \\n \\t \\r \\0 \\\\ \\xHH")
    return _ESCAPES[escape]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _escaped(data: bytes) -> bytes:
    return visible(data.decode("utf-8", "backslashreplace"), keep="\n\t").encode()
