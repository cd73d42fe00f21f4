"""Headers of Kafka's requests and responses, beside their declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import WireError
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApiKey
from millrace_protocol.kafka.framing import kafka_response_prefix, read_kafka_header
from millrace_protocol.kafka.headers import RequestHeader, ResponseHeader

APIS = st.sampled_from(sorted(KAFKA_APIS))
IDS = st.integers(-(1 << 31), (1 << 31) - 1)


def framed(header: bytes, body: bytes) -> bytes:
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


@given(key=APIS, data=st.data(), correlation_id=IDS, client_id=st.none() | st.text(max_size=50))
def test_a_header_is_read_as_it_is_declared(
    key: int, data: st.DataObject, correlation_id: int, client_id: str | None
) -> None:
    api = KAFKA_APIS[key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    declared = RequestHeader(key, version, correlation_id, client_id)
    encoded = encode(declared, 2 if api.is_flexible(version) else 1)
    header = read_kafka_header(framed(encoded, b"body"))
    assert (header.key, header.version, header.correlation_id) == (key, version, correlation_id)
    assert header.client_id == (client_id or "")
    assert header.is_supported
    assert header.body_position == 4 + len(encoded)

    prefix = kafka_response_prefix(header, 10)
    has_tags = api.is_flexible(version) and key != KafkaApiKey.API_VERSIONS
    response = decode(ResponseHeader, prefix[4:], 1 if has_tags else 0)
    assert response.correlation_id == correlation_id
    assert int.from_bytes(prefix[:4], "big") == len(prefix) - 4 + 10


@given(key=APIS, data=st.data(), frame=st.binary(max_size=60))
def test_any_bytes_are_a_header_or_refused(key: int, data: st.DataObject, frame: bytes) -> None:
    api = KAFKA_APIS[key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    frame = framed(key.to_bytes(2, "big") + version.to_bytes(2, "big"), frame)
    try:
        assert read_kafka_header(frame).body_position <= len(frame)
    except WireError as error:
        assert error.position is not None


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    tags = b"\x02" + b"\x07\x03abc" + b"\x09\x00"
    frame = framed(b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff" + tags, b"body")
    assert frame[read_kafka_header(frame).body_position :] == b"body"


@pytest.mark.parametrize(
    ("version", "is_supported"), [(0, True), (4, True), (5, False), (0x7FFF, False)]
)
def test_a_version_that_the_broker_does_not_have_is_known_as_such(
    version: int, is_supported: bool
) -> None:
    header = b"\x00\x12" + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff\x00"
    assert read_kafka_header(framed(header, b"")).is_supported is is_supported
