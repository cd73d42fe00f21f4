"""A stream of frames, requests and responses mixed; the header of each tells its kind.

Responses of Kafka's protocol have no such header, so they are read in conversations alone.

Owns the header's sixteen bytes (wire_spec.md W-2) and the recognition of the text dialect. A
malformed frame is shown up to the byte where it goes wrong; what follows a length that cannot be
true is not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.dissect.body import dissect_body, error_name
from millrace_protocol.dissect.kafka_frames import dissect_kafka_request, is_kafka_request
from millrace_protocol.dissect.span import DEFAULT_LIMITS, Buffer, Limits, Span
from millrace_protocol.framing import (
    CLIENT_ID_BYTES_MAX,
    HEADER,
    HEADER_SIZE,
    LENGTH_SIZE,
    MAGIC,
    RESPONSE_BIT,
    TEXT_OPENINGS,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.schema import Message

FRAME_LENGTH_MAX = 1 << 30
"""No frame is longer, whatever a broker is set to accept: more is not a length."""
_TEXT_LINE_BYTES_MAX = 64 << 10


def frame_size(data: Buffer, start: int = 0) -> int | None:
    """The size of the frame or text line at `start`; None if its end is not there yet.

    0 for bytes that are neither: a stream cannot be cut any further.
    """
    view = memoryview(data)[start:]
    if len(view) and is_text(view[0]):
        newline = bytes(view[:_TEXT_LINE_BYTES_MAX]).find(b"\n")
        if newline < 0:
            return None if len(view) < _TEXT_LINE_BYTES_MAX else 0
        return newline + 1
    if len(view) < LENGTH_SIZE:
        return None
    if is_kafka_request(view):
        size = LENGTH_SIZE + int.from_bytes(view[:LENGTH_SIZE], "big")
        return size if size <= len(view) else None
    length = int.from_bytes(view[:LENGTH_SIZE], "big")
    if not HEADER_SIZE - LENGTH_SIZE <= length <= FRAME_LENGTH_MAX:
        return 0
    if len(view) >= HEADER_SIZE and view[4:6] != MAGIC:
        return 0
    size = LENGTH_SIZE + length
    return size if size <= len(view) else None


def is_text(first_byte: int) -> bool:
    """Whether a frame cannot begin with this byte and a line of text can."""
    return first_byte in TEXT_OPENINGS


def find_frame(data: Buffer, start: int) -> int | None:
    """Where, at or after `start`, a frame may begin: for a stream with a hole in it."""
    haystack = bytes(memoryview(data)[start:])
    at = haystack.find(MAGIC)
    while at >= 0:
        if at >= LENGTH_SIZE:
            length = int.from_bytes(haystack[at - LENGTH_SIZE : at], "big")
            if HEADER_SIZE - LENGTH_SIZE <= length <= FRAME_LENGTH_MAX:
                return start + at - LENGTH_SIZE
        at = haystack.find(MAGIC, at + 1)
    return None


def dissect_frames(data: Buffer, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Span]:
    """One span per frame, or line of text, of a stream. Never raises for bad bytes."""
    position = 0
    while position < len(data):
        size = frame_size(data, position)
        end = position + size if size else len(data)
        yield dissect_frame(data, position, end, limits=limits)
        if not size:
            return
        position = end


def dissect_frame(data: Buffer, start: int, end: int, *, limits: Limits = DEFAULT_LIMITS) -> Span:
    """The frame, or line of text, in `data[start:end]`, whole or not."""
    view = memoryview(data)
    if start < end and is_text(view[start]):
        text = bytes(view[start:end]).decode("utf-8", "backslashreplace").rstrip("\r\n")
        return Span(start, end, "line", "text", text, buffer=data)
    if is_kafka_request(view[:end], start):
        return dissect_kafka_request(data, start, end, limits=limits)
    fields, fault = _header(view, start, end)
    if fault:
        broken = _broken_header(fields, start, end, fault)
        return Span(start, end, "frame", "frame", fault=fault, children=broken, buffer=data)
    return _frame(view, start, end, fields, limits)


def _header(view: memoryview, start: int, end: int) -> tuple[list[Span], str]:
    """The header's fields as far as they are good, and the fault of the next one."""
    if end - start < HEADER_SIZE:
        return [], f"frame header takes {HEADER_SIZE} bytes, {end - start} follow"
    length, magic, api, version, correlation_id, last = HEADER.unpack_from(view, start)
    is_response = bool(api & RESPONSE_BIT)
    key = api & ~RESPONSE_BIT
    last_name = "error_code" if is_response else "client_id.size"
    kind = f"{_api_name(key)}, {'response' if is_response else 'request'}"
    spans = [
        Span(
            start, start + 4, "length", "uint32", length, f"frame of {length + LENGTH_SIZE} bytes"
        ),
        Span(start + 4, start + 6, "magic", "2 bytes", bytes(magic)),
        Span(start + 6, start + 8, "api", "uint16", key, kind),
        Span(start + 8, start + 10, "version", "uint16", version),
        Span(start + 10, start + 14, "correlation_id", "uint32", correlation_id),
        Span(start + 14, start + 16, last_name, "int16", last, error_name(last) * is_response),
    ]
    if not HEADER_SIZE - LENGTH_SIZE <= length <= FRAME_LENGTH_MAX:
        return [], f"frame length is {length}: this is no frame"
    if magic != MAGIC:
        return spans[:1], f"magic is {bytes(magic)!r}, {MAGIC!r} needed: this is no frame"
    if is_response:
        return spans, ""
    if not 0 <= last <= CLIENT_ID_BYTES_MAX:
        return spans[:5], f"client id has {last} bytes, 0 to {CLIENT_ID_BYTES_MAX} allowed"
    client_id_end = start + HEADER_SIZE + last
    if client_id_end > min(end, start + LENGTH_SIZE + length):
        return spans, "client id runs past the end of the frame"
    raw = bytes(view[start + HEADER_SIZE : client_id_end])
    try:
        client_id = raw.decode()
    except UnicodeDecodeError:
        return spans, "client id is not UTF-8"
    spans.append(Span(start + HEADER_SIZE, client_id_end, "client_id", "string", client_id))
    return spans, ""


def _broken_header(fields: list[Span], start: int, end: int, fault: str) -> tuple[Span, ...]:
    position = fields[-1].end if fields else start
    return (*fields, Span(position, end, "?", "?", fault=fault))


def _frame(view: memoryview, start: int, end: int, fields: list[Span], limits: Limits) -> Span:
    length, _, api, version, correlation_id, last = HEADER.unpack_from(view, start)
    is_response = bool(api & RESPONSE_BIT)
    key = api & ~RESPONSE_BIT
    what = "response" if is_response else "request"
    refusal = f" {error_name(last)}" if is_response and last else ""
    title = f"{_api_name(key)} {what} v{version} #{correlation_id}{refusal}"
    body_start = fields[-1].end
    cls = _body_class(key, version, error_code=last if is_response else None)
    if cls is None:
        rest = Span(body_start, end, "body", "?", fault="no such api or version: not decoded")
        return Span(
            start, end, title, "frame", fault=rest.fault, children=(*fields, rest), buffer=view
        )
    body_version = 0 if cls is ErrorResponse else version
    body, is_whole = dissect_body(cls, body_version, view, body_start, end, limits=limits)
    fault = "" if is_whole else next(span.fault for span in _last_leaves(body) if span.fault)
    missing = start + LENGTH_SIZE + length - end
    if missing > 0:
        fault = f"cut short: {missing} of {length + LENGTH_SIZE} bytes are missing"
    return Span(start, end, title, "frame", fault=fault, children=(*fields, *body), buffer=view)


def _last_leaves(spans: list[Span]) -> Iterator[Span]:
    return (leaf for span in reversed(spans) for leaf in reversed(list(span.leaves())))


def _body_class(key: int, version: int, *, error_code: int | None) -> type[Message] | None:
    """The message behind a header; `error_code` is None in a request."""
    if error_code:
        return ErrorResponse
    try:
        api = APIS[ApiKey(key)]
    except (ValueError, KeyError):
        return None
    if not api.min_version <= version <= api.max_version:
        return None
    return api.request if error_code is None else api.response


def _api_name(key: int) -> str:
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return f"api {key}"
