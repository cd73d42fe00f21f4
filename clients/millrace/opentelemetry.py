"""OpenTelemetry: the context of a trace in the headers of records, and spans of sends and reads.

    with send_span("orders") as headers:
        await producer.send("orders", value, headers=headers)

    async for record in consumer:
        with process_span(record):
            ...

Writes a context into headers and reads it back, with the propagator of the program: W3C Trace
Context and Baggage, unless it chose another. Values of headers are UTF-8, as other Kafka clients
write them. Needs `pip install 'millrace[opentelemetry]'`. Names and attributes of spans follow the
semantic conventions for messaging: https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace.records import Headers, Record

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import Link, Span, SpanKind
except ImportError as error:
    raise ImportError(
        "millrace.opentelemetry needs its API: pip install 'millrace[opentelemetry]'"
    ) from error

SYSTEM = "millrace"
"""The attribute `messaging.system`."""


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """The value of a header, as HTTP combines several of one name: joined by commas.

        A second `traceparent` thereby makes both invalid, as W3C demands. A value that is null or
        not UTF-8 is left out.
        """
        values = [text for name, value in carrier if name == key and (text := _text(value))]
        return [",".join(values)] if values else None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER = _HeaderGetter()


def inject(headers: Headers = (), *, context: Context | None = None) -> Headers:
    """`headers` with the context, the current one by default.

    The headers that the propagator may write are those of the context afterwards, and no others.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    fields = propagate.get_global_textmap().fields | carrier.keys()
    kept = tuple(header for header in headers if header[0] not in fields)
    return (*kept, *((name, value.encode()) for name, value in carrier.items()))


def extract(record: Record[Any, Any], *, context: Context | None = None) -> Context:
    """`context`, the current one by default, with what the headers of a record carry.

    Headers that are missing or malformed change nothing, and raise nothing.
    """
    return propagate.extract(record.headers, context, _GETTER)


@contextmanager
def send_span(topic: str, headers: Headers = ()) -> Iterator[Headers]:
    """A span of kind PRODUCER around a send; gives the headers to send with."""
    with trace.get_tracer(__name__).start_as_current_span(
        f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes("send", topic)
    ):
        yield inject(headers)


@contextmanager
def process_span(record: Record[Any, Any]) -> Iterator[Span]:
    """A span of kind CONSUMER around the processing of a record; it continues the record's trace.

    Its parent is the span of the send, and it has a link to it. Without one in the headers it is a
    child of the current span.
    """
    context = extract(record)
    sender = trace.get_current_span(extract(record, context=Context())).get_span_context()
    attributes = _attributes("process", record.topic) | {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    with trace.get_tracer(__name__).start_as_current_span(
        f"process {record.topic}",
        context,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=[Link(sender)] if sender.is_valid else [],
    ) as span:
        yield span


def _attributes(operation: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _text(value: bytes | None) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        return ""
