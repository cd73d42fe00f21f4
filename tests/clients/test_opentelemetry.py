"""Traces go on through a real broker, from a sender to a reader, also between Kafka's clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiokafka
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from millrace import Admin, Consumer, Headers, Producer, Record
from millrace.opentelemetry import extract, inject, process_span, send_span
from millrace_server.testing import BrokerThread

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def tracing() -> None:
    """A process has one provider, which cannot be taken back."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    _EXPORTER.clear()
    return _EXPORTER


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(topic={"durability": "os"}) as broker:
        yield broker.servers


@pytest.fixture
async def topic(servers: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = request.node.name
    async with Admin(servers) as admin:
        await admin.create_topic(name)
    yield name


def ids(span: ReadableSpan) -> tuple[int, int]:
    """The trace and the span."""
    return span.context.trace_id, span.context.span_id


def record_with(headers: Headers) -> Record:
    return Record.of("t", 0, 0, 0, None, b"", headers)


def trace_of(headers: Headers) -> int:
    """The trace that a record's headers continue; 0 for none."""
    context = extract(record_with(headers), context=Context())
    return trace.get_current_span(context).get_span_context().trace_id


async def test_a_trace_goes_on_in_the_consumer(
    servers: str, topic: str, spans: InMemorySpanExporter
) -> None:
    async with Producer(servers) as producer, Consumer(servers, topic) as consumer:
        with send_span(topic, (("tenant", b"7"),)) as headers:
            await producer.send(topic, b"1", headers=headers)
        record = await consumer.getone()
    with pytest.raises(ValueError, match="poison"), process_span(record):
        raise ValueError("poison")
    assert [name for name, _ in record.headers] == ["tenant", "traceparent"]
    sent, processed = spans.get_finished_spans()
    assert (sent.name, sent.kind) == (f"send {topic}", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == (f"process {topic}", SpanKind.CONSUMER)
    assert processed.parent is not None
    assert (processed.parent.trace_id, processed.parent.span_id) == ids(sent)
    assert [(link.context.trace_id, link.context.span_id) for link in processed.links] == [
        ids(sent)
    ]
    assert (sent.status.status_code, processed.status.status_code) == (
        StatusCode.UNSET,
        StatusCode.ERROR,
    )
    assert dict(processed.attributes or {}) == {
        "messaging.system": "millrace",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }


async def test_a_trace_goes_on_to_and_from_a_client_of_kafka(servers: str, topic: str) -> None:
    async with Producer(servers) as producer, Consumer(servers, topic) as consumer:
        with send_span(topic) as headers:
            await producer.send(topic, b"1", headers=headers)
            trace_id = trace.get_current_span().get_span_context().trace_id
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as reader:
            found = await reader.getone()
        assert found.headers == headers
        assert format(trace_id, "032x").encode() in dict(found.headers)["traceparent"]
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as writer:
            await writer.send_and_wait(topic, b"2", headers=[("traceparent", TRACEPARENT)])
        await consumer.getone()
        assert trace_of((await consumer.getone()).headers) == TRACE_ID


def test_headers_of_another_trace_are_replaced() -> None:
    old = (("a", b"1"), ("traceparent", TRACEPARENT), ("tracestate", b"x=y"), ("a", None))
    with trace.get_tracer("test").start_as_current_span("span") as span:
        headers = inject(old, context=baggage.set_baggage("user", "ä"))
        assert trace_of(headers) == span.get_span_context().trace_id != TRACE_ID
    assert [name for name, _ in headers] == ["a", "a", "traceparent", "baggage"]
    assert baggage.get_baggage("user", extract(record_with(headers))) == "ä"
    assert inject(old) == (("a", b"1"), ("a", None))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", None),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", b"00-nonsense"),),
        (("traceparent", b"ff" + TRACEPARENT[2:]),),
        (("traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01"),),
        (("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)),
        (("Traceparent", TRACEPARENT),),
    ],
)
def test_headers_that_carry_no_context_begin_a_trace(
    headers: Headers, spans: InMemorySpanExporter
) -> None:
    assert trace_of(headers) == 0
    with process_span(record_with(headers)):
        pass
    (span,) = spans.get_finished_spans()
    assert (span.parent, list(span.links)) == (None, [])


def test_a_state_that_is_malformed_leaves_the_trace() -> None:
    headers = (("traceparent", TRACEPARENT), ("tracestate", b"\xff"), ("baggage", b"\xff"))
    assert trace_of(headers) == TRACE_ID
