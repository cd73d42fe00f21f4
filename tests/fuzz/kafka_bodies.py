"""The decoders of Kafka's protocol: headers, and the messages of every api in every version.

The first byte of an input chooses the version.
"""

from __future__ import annotations

from functools import partial

from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import WireError
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi
from millrace_protocol.kafka.framing import kafka_response_prefix, read_kafka_header
from millrace_protocol.kafka.headers import RequestHeader
from millrace_protocol.schema import Message
from tests.fuzz.samples import body
from tests.fuzz.targets import SHOWN_BYTES_MAX, Target, pcap, shown


def kafka_frames() -> tuple[bytes, ...]:
    """A right request of every api in its first and its last version."""
    return tuple(
        kafka_frame(api, version)
        for api in KAFKA_APIS.values()
        for version in (api.min_version, api.max_version)
    )


def kafka_frame(api: KafkaApi, version: int, content: bytes | None = None) -> bytes:
    """A request frame with this body, or a right one."""
    header = RequestHeader(api.key, version, 7, "fuzz")
    made = encode(header, 2 if api.is_flexible(version) else 1)
    made += body(api.request, version) if content is None else content
    return len(made).to_bytes(4, "big") + made


def _header(data: bytes) -> None:
    try:
        header = read_kafka_header(data)
    except WireError as error:
        assert 0 <= error.position <= len(data), error
        return
    assert header.body_position <= len(data)
    prefix = kafka_response_prefix(header, 5)
    assert int.from_bytes(prefix[:4], "big") == len(prefix) - 4 + 5


def _body(api: KafkaApi, cls: type[Message], data: bytes) -> None:
    if not data:
        return
    version = api.min_version + data[0] % (api.max_version - api.min_version + 1)
    try:
        message = decode(cls, memoryview(bytearray(data[1:])), version)
    except WireError as error:
        assert 0 <= error.position <= len(data), error
        return
    # Not the bytes of `data`: unknown tagged fields are not kept, and lengths may be longer there.
    # Nor are messages compared: a float may be NaN, which equals nothing.
    made = encode(message, version)
    assert encode(decode(cls, made, version), version) == made


def _targets() -> list[Target]:
    made: list[Target] = []
    for api in KAFKA_APIS.values():
        versions = range(api.max_version - api.min_version + 1)
        for cls in (api.request, api.response):
            seeds = tuple(bytes((n,)) + body(cls, api.min_version + n) for n in versions)
            made.append(Target(f"kafka {cls.__name__}", partial(_body, api, cls), seeds))
    return made


KAFKA_TARGETS = (
    Target("kafka request header", _header, kafka_frames()),
    Target("dissect kafka frames", shown, kafka_frames(), SHOWN_BYTES_MAX),
    Target("dissect a kafka capture", shown, (pcap(kafka_frames()[:6]),), SHOWN_BYTES_MAX),
    *_targets(),
)
