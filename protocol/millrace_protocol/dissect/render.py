"""Spans as lines of text: position, bytes, name, value.

Owns the columns. No colours: the caller may add them. Bytes from a peer are shown escaped, so
that a capture cannot write to the reader's terminal; long bytes and values lose their middle.

    position hex, decimal   bytes                  name, value, type and note
    00000010      16        00 06 63 6c 69 63 6b   partitions[0].topic = 'clicks'  string
    ~00000000      0        0c                     a `~`: counted in decompressed bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace_protocol.dissect.span import Buffer, Span

_HEX_BYTES_MAX = 16
_HEX_HEAD = 10
_HEX_TAIL = 4
_HEX_WIDTH = 3 * _HEX_BYTES_MAX - 1
_VALUE_CHARS_MAX = 80


def render(spans: Iterable[Span], data: Buffer = b"") -> Iterator[str]:
    """The lines for `spans`; their positions count in `data`, unless one has its own."""
    for span in spans:
        buffer = data if span.buffer is None else span.buffer
        if not span.children:
            yield from _leaf(span, buffer, "")
            continue
        yield f"{span.name}: bytes {span.start} to {span.end}{_remark(span)}"
        for child in span.children:
            yield from _lines(child, buffer, "")


def _lines(span: Span, buffer: Buffer, mark: str) -> Iterator[str]:
    inner, inner_mark = (buffer, mark) if span.buffer is None else (span.buffer, "~")
    if not span.children:
        yield from _leaf(span, inner, inner_mark)
        return
    yield f"{_columns(span, '', inner_mark)}{span.name}: {span.type}{_remark(span)}"
    for child in span.children:
        yield from _lines(child, inner, inner_mark)


def _leaf(span: Span, buffer: Buffer, mark: str) -> Iterator[str]:
    has_value = span.type != "?" and (span.value is not None or not span.note)
    value = f" = {_value(span)}" if has_value else ""
    type_ = "" if span.type == "?" else f"  {span.type}"
    columns = _columns(span, _hex(buffer, span.start, span.end), mark)
    yield f"{columns}{span.name}{value}{type_}{_remark(span)}"


def _columns(span: Span, shown: str, mark: str) -> str:
    position = mark + format(span.start, "08x")
    return f"{position:>9} {span.start:>8}  {shown:<{_HEX_WIDTH}}  "


def _remark(span: Span) -> str:
    note = f"  ; {span.note}" if span.note else ""
    told_below = any(True for child in span.children for _ in child.faults())
    return note + (f"  <-- {span.fault}" if span.fault and not told_below else "")


def _hex(buffer: Buffer, start: int, end: int) -> str:
    view = memoryview(buffer)
    if end - start <= _HEX_BYTES_MAX:
        return view[start:end].hex(" ")
    head, tail = view[start : start + _HEX_HEAD], view[end - _HEX_TAIL : end]
    return f"{head.hex(' ')} .. {tail.hex(' ')}"


def _value(span: Span) -> str:
    value = span.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, memoryview):
        size = len(value)
        value = bytes(value[: 2 * _VALUE_CHARS_MAX])
        text = _bytes(value)
        return _elide(text) + (f" ({size} bytes)" if size > len(value) else "")
    if isinstance(value, bytes):
        return _elide(_bytes(value))
    return _elide(ascii(value) if isinstance(value, str) else str(value))


def _bytes(value: bytes) -> str:
    try:
        return ascii(value.decode())
    except UnicodeDecodeError:
        return ascii(value)


def _elide(text: str) -> str:
    if len(text) <= _VALUE_CHARS_MAX:
        return text
    half = _VALUE_CHARS_MAX // 2
    return f"{text[:half]} .. {text[-half:]}"
