"""Kafka's frames: a length, a header, a body.

    request   length i32 | api i16 | version i16 | correlation i32 | client id | tags
    response  length i32 | correlation i32 | tags

`length` counts the bytes after itself. Only flexible versions have tags, and no response of
ApiVersions has them (KIP-511). The client id is not compact in any version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from millrace_protocol.errors import WireError
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.primitives import TAGS_MAX
from millrace_protocol.uvarint import read_uvarint

API_KEY_MAX = 0x00FF
"""No api of Kafka has a larger number; the native protocol has its magic in these two bytes."""
_HEADER = struct.Struct(">IHHih")
_HEADER_SIZE = _HEADER.size
_RESPONSE = struct.Struct(">Ii")
_ID_SIZE = 4
_NO_TAGS = b"\0"
_API_VERSIONS = int(KafkaApiKey.API_VERSIONS)


@dataclass(slots=True)
class KafkaRequestHeader:
    """The header of a request. `api` is None for one that the broker does not have."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    api: KafkaApi | None
    body_position: int
    """Counted from the start of the frame; 0 where the header of the version is not known."""

    @property
    def is_supported(self) -> bool:
        """Whether the broker has the api in this version."""
        api = self.api
        return api is not None and api.min_version <= self.version <= api.max_version


def read_kafka_header(frame: bytes | bytearray | memoryview) -> KafkaRequestHeader:
    """The header of a whole request frame, its length included. Raises `WireError`."""
    size = len(frame)
    if size < _HEADER_SIZE:
        raise WireError(f"request header has {size} bytes, {_HEADER_SIZE} needed", position=0)
    _, key, version, correlation_id, id_size = _HEADER.unpack_from(frame)
    position = _HEADER_SIZE
    if id_size > 0:
        position += id_size
    if id_size < -1 or position > size:
        raise WireError(f"client id has a length of {id_size}", position=_HEADER_SIZE - 2)
    try:
        client_id = str(frame[_HEADER_SIZE:position], "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("client id is not UTF-8", position=_HEADER_SIZE + error.start) from None
    api = KAFKA_APIS.get(key)
    if api is not None and api.is_flexible(version):
        # Clients send no tags in headers.
        has_none = position < size and not frame[position]
        position = position + 1 if has_none else _behind_tags(frame, position)
    return KafkaRequestHeader(key, version, correlation_id, client_id, api, position)


def kafka_response_prefix(header: KafkaRequestHeader, body_size: int) -> bytes:
    """What stands before a response body of `body_size` bytes."""
    api = header.api
    if api is not None and header.key != _API_VERSIONS and api.is_flexible(header.version):
        return _RESPONSE.pack(_ID_SIZE + 1 + body_size, header.correlation_id) + _NO_TAGS
    return _RESPONSE.pack(_ID_SIZE + body_size, header.correlation_id)


def _behind_tags(frame: bytes | bytearray | memoryview, position: int) -> int:
    """The position behind the tagged fields of a header, all of which are unknown."""
    start = position
    try:
        count, position = read_uvarint(frame, position)
        for _ in range(min(count, TAGS_MAX)):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except (IndexError, ValueError):
        raise WireError("the tagged fields of the header are broken", position=start) from None
    if count > TAGS_MAX:
        raise WireError(f"{count:,} tagged fields in the header", position=start)
    if position > len(frame):
        raise WireError("a tagged field runs past the end of the frame", position=start)
    return position
