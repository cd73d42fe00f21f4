"""Kafka's frames, beside native ones: every byte is explained, responses by their requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millrace_protocol.codec import encode
from millrace_protocol.dissect import Segment, Sighting, dissect_frames, dissect_segments
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.framing import kafka_response_prefix, read_kafka_header
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest, MetadataRequestTopic
from millrace_protocol.kafka.produce import ProducePartition, ProduceRequest, ProduceTopic
from millrace_protocol.records import encode_batch
from millrace_protocol.spec.examples import EXAMPLES
from tests.fuzz.kafka_bodies import kafka_frame
from tests.fuzz.samples import body
from tests.protocol.test_dissect_frames import assert_every_byte_is_explained_once

CASES = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in KAFKA_APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]


def answer(request: bytes, content: bytes | None = None) -> bytes:
    """A response to a request frame."""
    header = read_kafka_header(request)
    assert header.api is not None
    made = body(header.api.response, header.version) if content is None else content
    return kafka_response_prefix(header, len(made)) + made


def conversation(*exchanges: tuple[bytes, bytes]) -> Iterator[Sighting]:
    """What is shown of requests and responses, each in a segment of its own."""
    sequences = {"a:1": 1, "b:9092": 1}
    segments: list[Segment] = []
    for exchange in exchanges:
        for source, target, data in zip(sequences, reversed(sequences), exchange, strict=True):
            segments.append(Segment(0, source, target, sequences[source], False, data))
            sequences[source] += len(data)
    return dissect_segments(segments)


@pytest.mark.parametrize(("api", "version"), CASES)
def test_every_byte_of_requests_and_responses_is_explained_once(
    api: KafkaApi, version: int
) -> None:
    request = kafka_frame(api, version)
    asked, answered = (sighting.span for sighting in conversation((request, answer(request))))
    assert asked.name == f"Kafka {api.name} request v{version} #7"
    assert answered.name == f"Kafka {api.name} response v{version} #7"
    for span, size in ((asked, len(request)), (answered, len(answer(request)))):
        assert not [*span.faults()]
        assert_every_byte_is_explained_once([span], size)


def test_fields_records_and_tags_have_their_names() -> None:
    records = bytes(encode_batch([b"v"], timestamps_ms=1))
    topic = ProduceTopic("t", NO_ID, (ProducePartition(0, records),))
    content = encode(ProduceRequest(None, -1, 5, (topic,)), 9)
    (span,) = dissect_frames(kafka_frame(KAFKA_APIS[KafkaApiKey.PRODUCE], 9, content))
    shown = {leaf.name: leaf.value for leaf in span.leaves()}
    assert shown["client_id"] == "fuzz"
    assert shown["topics[0].partitions[0].index"] == 0
    assert shown["topics[0].partitions[0].records.size"] == len(records)
    assert shown["topics[0].partitions[0].records[0].record_count"] == 1
    assert shown["topics[0].partitions[0].tags.count"] == 0


def test_a_capture_may_mix_both_protocols() -> None:
    kafka = kafka_frame(KAFKA_APIS[KafkaApiKey.METADATA], 12)
    native = EXAMPLES["fetch-request"]
    segments = [
        Segment(0, "a:1", "b:9092", 1, False, kafka),
        Segment(0, "c:1", "b:9092", 1, False, native),
        Segment(0, "b:9092", "c:1", 1, False, EXAMPLES["fetch-response"]),
        Segment(0, "b:9092", "a:1", 1, False, answer(kafka)),
    ]
    found = [sighting.span for sighting in dissect_segments(segments)]
    assert [span.name.split(" #")[0] for span in found] == [
        "Kafka Metadata request v12",
        "Fetch request v0",
        "Fetch response v0",
        "Kafka Metadata response v12",
    ]
    assert not [fault for span in found for fault in span.faults()]


def test_what_is_broken_or_not_known_is_said() -> None:
    api = KAFKA_APIS[KafkaApiKey.METADATA]
    whole = kafka_frame(api, 12)
    (span,) = dissect_frames(whole[:-3])
    assert span.fault == "cut short: 3 bytes are missing"
    (span,) = dissect_frames(kafka_frame(api, 1, b"\0\0\0\x05"))
    assert span.fault
    tagged = (
        encode(MetadataRequest((MetadataRequestTopic(NO_ID, "t"),)), 12)[:-1] + b"\x01\x07\x02ab"
    )
    (span,) = dissect_frames(kafka_frame(api, 12, tagged))
    assert not [*span.faults()]
    assert [leaf.type for leaf in span.leaves() if leaf.name == "tags[0]"] == ["unknown field"]
    tagged = tagged[:-3] + b"\x7fab"
    (span,) = dissect_frames(kafka_frame(api, 12, tagged))
    assert span.fault


def test_a_response_without_its_request_and_a_hole_are_told() -> None:
    api = KAFKA_APIS[KafkaApiKey.METADATA]
    request = kafka_frame(api, 1)
    response = answer(request)
    other = response[:4] + b"\0\0\0\x63" + response[8:]
    asked, unknown, again, known = (
        sighting.span for sighting in conversation((request, other), (request, response))
    )
    assert unknown.fault == "its request is not known"
    assert known.name == "Kafka Metadata response v1 #7"
    assert asked.name == again.name
    lost = [
        Segment(0, "a:1", "b:9092", 1, True, b""),
        Segment(0, "b:9092", "a:1", 1, True, b""),
        Segment(0, "a:1", "b:9092", 2, False, request),
        Segment(0, "b:9092", "a:1", 9, False, response[7:] + response),
    ]
    names = [sighting.span.name for sighting in dissect_segments(lost)]
    assert names == ["Kafka Metadata request v1 #7", "hole", "Kafka Metadata response v1 #7"]
