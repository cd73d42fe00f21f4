r"""Records as text: format strings like kcat's, and JSON lines.

    %t topic      %o offset             %k key      %K its size, -1 for null
    %p partition  %T timestamp in ms    %s value    %S its size, -1 for null
    %h headers, name=value,...          %% a percent sign      \n \t \r \\ \xHH escapes

UTF-8 is written unchanged. Other bytes become `\xHH` in text, and a value with other bytes becomes
`{"base64": "..."}` in JSON. Null is empty in text and null in JSON. On a terminal, control
characters become `\xHH` too, so that a record cannot send control sequences.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from millrace.records import Record, RecordBatch

AnyRecord = Record[bytes, bytes]
ToText = Callable[[AnyRecord], str]

_PIECES = re.compile(r"%(?P<field>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)
}


class FormatError(ValueError):
    """A format string that cannot be used."""


def records_before(batch: RecordBatch[bytes, bytes], end: int | None) -> list[AnyRecord]:
    """The records of a batch with offsets below `end`; all of them for None."""
    if end is None or batch.next_offset <= end:
        return list(batch)
    return [record for record in batch if record.offset < end]


def text_format(format_: str, *, for_terminal: bool) -> ToText:
    """A function that formats a record by a format string. Raises `FormatError`."""
    decode = _shown if for_terminal else _decoded
    pieces: list[str | ToText] = []
    for piece in _PIECES.finditer(format_):
        if (letter := piece["field"]) is not None:
            pieces.append(_field(letter, decode))
        elif (escape := piece["escape"]) is not None:
            pieces.append(_escape(escape))
        else:
            pieces.append(piece[0])
    template = "".join("{}" if callable(p) else _braced(p) for p in pieces)
    fields = tuple(piece for piece in pieces if callable(piece))
    fill = template.format
    if len(fields) == 1:
        only = fields[0]
        return lambda record: fill(only(record))
    return lambda record: fill(*[field(record) for field in fields])


def json_line(record: AnyRecord) -> str:
    """A record as a JSON object, with a line end."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": [[name, _json(value)] for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False) + "\n"


def _field(letter: str, decode: Callable[[bytes | None], str]) -> str | ToText:
    match letter:
        case "%":
            return "%"
        case "t":
            return lambda record: record.topic
        case "p":
            return lambda record: str(record.partition)
        case "o":
            return lambda record: str(record.offset)
        case "T":
            return lambda record: str(record.timestamp_ms)
        case "k":
            return lambda record: decode(record.key)
        case "s":
            return lambda record: decode(record.value)
        case "K":
            return lambda record: str(_size(record.key))
        case "S":
            return lambda record: str(_size(record.value))
        case "h":
            return lambda record: ",".join(
                f"{decode(name.encode())}={decode(value)}" for name, value in record.headers
            )
    raise FormatError(f"%{letter}: unknown field; use %t %p %o %T %k %s %K %S %h %%")


def _escape(escape: str) -> str:
    if escape.startswith("x") and len(escape) == 3:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPES:
        raise FormatError(f"\\{escape}: unknown escape; use \\n \\t \\r \\0 \\\\ \\xHH")
    return _ESCAPES[escape]


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _decoded(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "backslashreplace")


def _shown(data: bytes | None) -> str:
    return _decoded(data).translate(_CONTROLS)


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
