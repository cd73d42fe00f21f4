"""Frames of Kafka's protocol. Which message a response holds follows from its request alone.

Owns what is remembered of the requests of one connection. The native protocol has its magic where
Kafka has the number of an api, so the two are told apart by any request.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.dissect.body import dissect_body
from millrace_protocol.dissect.span import DEFAULT_LIMITS, Buffer, Limits, Span
from millrace_protocol.errors import WireError
from millrace_protocol.framing import LENGTH_SIZE
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.framing import API_KEY_MAX, KafkaRequestHeader, read_kafka_header
from millrace_protocol.kafka.headers import RequestHeader, ResponseHeader
from millrace_protocol.schema import Message

FRAME_LENGTH_MAX = 1 << 30
REQUEST_LENGTH_MIN = 10
RESPONSE_LENGTH_MIN = 4
_PENDING_MAX = 10_000
_CORRELATION_END = LENGTH_SIZE + 4


def is_kafka_request(data: Buffer, start: int = 0) -> bool:
    """Whether a request of Kafka's protocol may begin here, as far as its bytes are there."""
    head = bytes(memoryview(data)[start : start + 8])
    if len(head) < 8 or int.from_bytes(head[4:6], "big") > API_KEY_MAX:
        return False
    api = KAFKA_APIS.get(int.from_bytes(head[4:6], "big"))
    length = int.from_bytes(head[:4], "big")
    if api is None or not REQUEST_LENGTH_MIN <= length <= FRAME_LENGTH_MAX:
        return False
    return 0 <= int.from_bytes(head[6:8], "big") <= api.max_version


class KafkaConversation:
    """The requests of one connection that have no response yet; a bounded number of them."""

    def __init__(self) -> None:
        self._pending: dict[int, KafkaRequestHeader] = {}

    def note(self, frame: Buffer) -> None:
        """Takes note of a request."""
        try:
            header = read_kafka_header(memoryview(frame))
        except WireError:
            return
        if len(self._pending) >= _PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        self._pending[header.correlation_id] = header

    def response_size(self, data: Buffer) -> int | None:
        """The size of the response at the start; None if it is not all there, 0 if it is none."""
        if len(data) < LENGTH_SIZE:
            return None
        length = int.from_bytes(bytes(memoryview(data)[:LENGTH_SIZE]), "big")
        if not RESPONSE_LENGTH_MIN <= length <= FRAME_LENGTH_MAX:
            return 0
        size = LENGTH_SIZE + length
        return size if size <= len(data) else None

    def find_response(self, data: Buffer) -> int | None:
        """Where a response to a noted request may begin, for a stream with a hole in it."""
        haystack = bytes(data)
        found: int | None = None
        for correlation_id in self._pending:
            at = haystack.find(correlation_id.to_bytes(4, "big", signed=True), LENGTH_SIZE)
            while at >= 0:
                length = int.from_bytes(haystack[at - LENGTH_SIZE : at], "big")
                if RESPONSE_LENGTH_MIN <= length <= FRAME_LENGTH_MAX:
                    start = at - LENGTH_SIZE
                    found = start if found is None else min(found, start)
                    break
                at = haystack.find(correlation_id.to_bytes(4, "big", signed=True), at + 1)
        return found

    def dissect_response(self, frame: Buffer, *, limits: Limits = DEFAULT_LIMITS) -> Span:
        """A response, or as much of it as there is."""
        view, end = memoryview(frame), len(frame)
        if end < _CORRELATION_END:
            fault = f"response header takes {_CORRELATION_END} bytes, {end} follow"
            return Span(0, end, "Kafka response", "frame", fault=fault, buffer=frame)
        correlation_id = int.from_bytes(view[LENGTH_SIZE:_CORRELATION_END], "big", signed=True)
        header = self._pending.pop(correlation_id, None)
        api = None if header is None else header.api
        if header is None or api is None or not header.is_supported:
            title, fault = f"Kafka response #{correlation_id}", "its request is not known"
            head, _ = dissect_body(ResponseHeader, 0, view, LENGTH_SIZE, _CORRELATION_END)
            rest = Span(_CORRELATION_END, end, "body", "?", fault=fault)
            fields = (_length(view, 0), *head, rest)
            return Span(0, end, title, "frame", fault=fault, children=fields, buffer=frame)
        version = header.version
        has_tags = api.key is not KafkaApiKey.API_VERSIONS and api.is_flexible(version)
        head_size = _CORRELATION_END + has_tags
        title = f"Kafka {api.name} response v{version} #{correlation_id}"
        parts = _Part(ResponseHeader, int(has_tags), head_size), _Part(api.response, version, end)
        return _frame(frame, 0, end, title, parts, limits)


def dissect_kafka_request(
    data: Buffer, start: int, end: int, *, limits: Limits = DEFAULT_LIMITS
) -> Span:
    """The request in `data[start:end]`, whole or not."""
    view = memoryview(data)
    try:
        header = read_kafka_header(view[start:end])
    except WireError as error:
        fault = error.reason
        rest = Span(start + LENGTH_SIZE, end, "header", "?", fault=fault)
        fields = (_length(view, start), rest)
        return Span(start, end, "Kafka request", "frame", fault=fault, children=fields, buffer=data)
    api = header.api
    title = f"Kafka {_name(header, api)} request v{header.version} #{header.correlation_id}"
    body_start = start + header.body_position
    is_flexible = api is not None and api.is_flexible(header.version)
    head = _Part(RequestHeader, 2 if is_flexible else 1, body_start)
    if api is None or not header.is_supported:
        return _frame(data, start, end, title, (head,), limits)
    return _frame(data, start, end, title, (head, _Part(api.request, header.version, end)), limits)


class _Part:
    """A message and where its bytes end."""

    def __init__(self, cls: type[Message], version: int, end: int) -> None:
        self.cls = cls
        self.version = version
        self.end = end


def _frame(
    data: Buffer, start: int, end: int, title: str, parts: tuple[_Part, ...], limits: Limits
) -> Span:
    view = memoryview(data)
    spans: list[Span] = [_length(view, start)]
    position, fault = start + LENGTH_SIZE, ""
    for part in parts:
        found, is_whole = dissect_body(
            part.cls, part.version, view, position, min(part.end, end), limits=limits
        )
        spans += found
        if not is_whole:
            fault = next(_faults(found))
            break
        position = part.end
    if not fault and position < end:
        fault = "no such api or version: not decoded"
        spans.append(Span(position, end, "body", "?", fault=fault))
    missing = start + LENGTH_SIZE + int.from_bytes(view[start : start + LENGTH_SIZE], "big") - end
    if missing > 0:
        fault = f"cut short: {missing} bytes are missing"
    return Span(start, end, title, "frame", fault=fault, children=tuple(spans), buffer=data)


def _faults(spans: list[Span]) -> Iterator[str]:
    return (each.fault for span in reversed(spans) for each in span.faults())


def _length(view: memoryview, start: int) -> Span:
    length = int.from_bytes(view[start : start + LENGTH_SIZE], "big")
    note = f"frame of {length + LENGTH_SIZE} bytes"
    return Span(start, start + LENGTH_SIZE, "length", "int32", length, note)


def _name(header: KafkaRequestHeader, api: KafkaApi | None) -> str:
    return f"api {header.key}" if api is None else api.name
