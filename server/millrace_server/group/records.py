"""Records of the offsets topic, `__consumer_offsets`, and the partition of each group in it.

Owns the bytes, which are Kafka's (OffsetMetadataManager, GroupMetadataManager), so tools that read
one read the other. What follows from a record is in `image`. Numbers are big-endian. A string is a
length i16 and UTF-8; `string?` has length -1 for null; bytes are a length i32 and the bytes.

    key 0, 1  version i16 | group string | topic string | partition i32
    value 3   version i16 | offset i64 | leader epoch i32 | metadata string | commit time i64

    key 2     version i16 | group string
    value 3   version i16 | protocol type string | generation i32 | protocol string? |
              leader string? | state time i64 | members: count i32, (
                  member id string | instance id string? | client id string | client host string |
                  rebalance timeout i32 | session timeout i32 | subscription bytes |
                  assignment bytes )*

A null value is a tombstone: the offset or group of the key is deleted. Keys of other versions
belong to newer coordinators and are skipped with a note. A value that cannot be decoded stops the
load, because to skip it would lose a commit. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from millrace_server.coordinator.shard import RecordSerde, UnknownRecord, UnreadableRecord

KEY_VERSION_OFFSET: Final = 1
KEY_VERSION_GROUP: Final = 2
VALUE_VERSION: Final = 3
"""Of both kinds of value."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""Kafka's `offsets.topic.num.partitions`. The number never changes once the topic exists, because
it decides the partition of each group."""

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqih")
_TIMEOUTS = struct.Struct(">ii")


class CommittedOffset(NamedTuple):
    """Where a group resumes in a partition: `offset` is the next record to read."""

    offset: int
    leader_epoch: int = -1
    """Leader epoch of the last record consumed, -1 when it is not known."""
    metadata: str = ""
    commit_wall_ms: int = 0


class OffsetCommitRecord(NamedTuple):
    """A group has committed an offset: Kafka's OffsetCommitKey and OffsetCommitValue."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetCommitTombstone(NamedTuple):
    """A committed offset has expired or is deleted."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member of a generation, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A generation with its assignments; without members when the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader_id: str | None
    state_wall_ms: int
    members: tuple[MemberMetadata, ...]


class GroupMetadataRecord(NamedTuple):
    """A generation has its assignment, or a group has become empty: Kafka's GroupMetadataKey."""

    group_id: str
    value: GroupMetadataValue


class GroupMetadataTombstone(NamedTuple):
    """A group has expired or is deleted."""

    group_id: str


GroupRecord = (
    OffsetCommitRecord | OffsetCommitTombstone | GroupMetadataRecord | GroupMetadataTombstone
)
"""What a group coordinator writes."""


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number.

    >>> java_string_hash("hourly")
    -1211426191
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for_group(group_id: str, partitions: int = OFFSETS_PARTITIONS) -> int:
    """The group's partition, 0 to `partitions` - 1.

    The smallest hash has no absolute value in 32 bits; Kafka takes 0 for it.
    """
    value = java_string_hash(group_id)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The record's key and value; the value is None for a tombstone."""
    match record:
        case OffsetCommitRecord():
            return _offset_key(record), _offset_value(record.committed)
        case OffsetCommitTombstone():
            return _offset_key(record), None
        case GroupMetadataRecord():
            return _group_key(record), _group_value(record.value)
        case GroupMetadataTombstone():
            return _group_key(record), None


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | UnknownRecord:
    """A record from its key and value. Raises `UnreadableRecord`."""
    if key is None or len(key) < _I16.size:
        return UnknownRecord(f"the key {key!r} is too short to name its version")
    version = key[0] << 8 | key[1]
    try:
        if version <= KEY_VERSION_OFFSET:
            group_id, topic, partition = _read_offset_key(key)
            if value is None:
                return OffsetCommitTombstone(group_id, topic, partition)
            return OffsetCommitRecord(group_id, topic, partition, _read_offset_value(value))
        if version == KEY_VERSION_GROUP:
            cursor = _Cursor(key, _I16.size)
            group_id = cursor.string()
            cursor.end()
            if value is None:
                return GroupMetadataTombstone(group_id)
            return GroupMetadataRecord(group_id, _read_group_value(value))
    except (struct.error, ValueError) as error:
        raise UnreadableRecord(
            f"the record of the offsets topic with key {key[:200]!r} is not understood ({error}); "
            "was this data directory written by a newer millrace?"
        ) from error
    return UnknownRecord(f"the key has version {version}; versions 0 to 2 are known here")


def _offset_key(record: OffsetCommitRecord | OffsetCommitTombstone) -> bytes:
    return (
        _I16.pack(KEY_VERSION_OFFSET)
        + _pack_string(record.group_id)
        + _pack_string(record.topic)
        + _I32.pack(record.partition)
    )


def _read_offset_key(key: bytes) -> tuple[str, str, int]:
    size = len(key)
    cut = 4 + (key[2] << 8 | key[3]) if size >= 4 else size
    end = cut + 2 + (key[cut] << 8 | key[cut + 1]) if cut + 2 <= size else size
    if end + _I32.size != size:
        raise ValueError("the key's lengths do not add up to its length")
    return key[4:cut].decode(), key[cut + 2 : end].decode(), _I32.unpack_from(key, end)[0]


def _offset_value(committed: CommittedOffset) -> bytes:
    text = committed.metadata.encode()
    return (
        _OFFSET_HEAD.pack(VALUE_VERSION, committed.offset, committed.leader_epoch, len(text))
        + text
        + _I64.pack(committed.commit_wall_ms)
    )


def _read_offset_value(value: bytes) -> CommittedOffset:
    version, offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value)
    _check_version(version)
    end = _OFFSET_HEAD.size + length
    if length < 0 or end + _I64.size != len(value):
        raise ValueError(f"a text of {length} bytes in a value of {len(value)}")
    text = value[_OFFSET_HEAD.size : end].decode() if length else ""
    return CommittedOffset(offset, leader_epoch, text, _I64.unpack_from(value, end)[0])


def _group_key(record: GroupMetadataRecord | GroupMetadataTombstone) -> bytes:
    return _I16.pack(KEY_VERSION_GROUP) + _pack_string(record.group_id)


def _group_value(value: GroupMetadataValue) -> bytes:
    parts = [
        _I16.pack(VALUE_VERSION),
        _pack_string(value.protocol_type),
        _I32.pack(value.generation),
        _pack_string(value.protocol),
        _pack_string(value.leader_id),
        _I64.pack(value.state_wall_ms),
        _I32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _pack_string(member.member_id),
            _pack_string(member.instance_id),
            _pack_string(member.client_id),
            _pack_string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _pack_bytes(member.subscription),
            _pack_bytes(member.assignment),
        )
    return b"".join(parts)


def _read_group_value(value: bytes) -> GroupMetadataValue:
    _check_version(_I16.unpack_from(value)[0])
    cursor = _Cursor(value, _I16.size)
    protocol_type = cursor.string()
    generation = cursor.i32()
    protocol, leader_id = cursor.nullable_string(), cursor.nullable_string()
    state_wall_ms = cursor.i64()
    members = tuple(_read_member(cursor) for _ in range(cursor.i32()))
    cursor.end()
    return GroupMetadataValue(
        protocol_type, generation, protocol, leader_id, state_wall_ms, members
    )


def _read_member(cursor: _Cursor) -> MemberMetadata:
    return MemberMetadata(
        member_id=cursor.string(),
        instance_id=cursor.nullable_string(),
        client_id=cursor.string(),
        client_host=cursor.string(),
        rebalance_timeout_ms=cursor.i32(),
        session_timeout_ms=cursor.i32(),
        subscription=cursor.sized_bytes(),
        assignment=cursor.sized_bytes(),
    )


def _check_version(version: int) -> None:
    if version != VALUE_VERSION:
        raise ValueError(f"a value of version {version}; version {VALUE_VERSION} is known here")


def _pack_string(text: str | None) -> bytes:
    """Length i16 and UTF-8, -1 for None; `struct.error` above 32,767 bytes."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _I16.pack(len(data)) + data


def _pack_bytes(data: bytes) -> bytes:
    """Length i32 and the bytes."""
    return _I32.pack(len(data)) + data


class _Cursor:
    """A position in bytes, which each read advances; a read past the end raises an error."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def i32(self) -> int:
        (value,) = _I32.unpack_from(self._data, self._position)
        self._position += _I32.size
        return int(value)

    def i64(self) -> int:
        (value,) = _I64.unpack_from(self._data, self._position)
        self._position += _I64.size
        return int(value)

    def nullable_string(self) -> str | None:
        (length,) = _I16.unpack_from(self._data, self._position)
        self._position += _I16.size
        return None if length == -1 else self._take(length).decode()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("a null string where there must be one")
        return text

    def sized_bytes(self) -> bytes:
        return self._take(self.i32())

    def end(self) -> None:
        """Raises `ValueError` unless everything has been read."""
        if self._position != len(self._data):
            raise ValueError(f"{len(self._data) - self._position} bytes after the end")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"a length of {length} at byte {self._position}, which is too long")
        data = self._data[self._position : end]
        self._position = end
        return data


GROUP_RECORD_SERDE: Final[RecordSerde[GroupRecord]] = RecordSerde(encode_record, decode_record)
