"""Records of the offsets topic: the only way what a coordinator knows for good ever changes.

Owns their bytes, which are those of Kafka's `__consumer_offsets`, so that tools which read one read
the other. Refuses to know what follows from a record; that is `image`. Big-endian; a string is a
length i16 and UTF-8, `string?` has length -1 for null; bytes are a length i32 and the bytes.

    key 0, 1  version i16 | group string | topic string | partition i32
    value 3   version i16 | offset i64 | leader epoch i32 | metadata string | commit time i64

    key 2     version i16 | group string
    value 3   version i16 | protocol type string | generation i32 | protocol string? |
              leader string? | state time i64 | members: count i32, (
                  member id string | instance id string? | client id string | client host string |
                  rebalance timeout i32 | session timeout i32 | subscription bytes |
                  assignment bytes )*

A null value is a tombstone: what the key names is gone. Keys of other versions belong to newer
coordinators and are passed over with a note. A value that is not understood stops the reader: to
pass it over would be to forget a commit. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from millrace_server.group.wire_strings import Cursor, pack_bytes, pack_string

KEY_VERSION_OFFSET: Final = 1
KEY_VERSION_GROUP: Final = 2
VALUE_VERSION: Final = 3
"""Of both kinds of value."""

_VERSION = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_OFFSET_HEAD = struct.Struct(">hqih")
_TIME = struct.Struct(">q")
_TIMEOUTS = struct.Struct(">ii")


class UnreadableRecord(Exception):
    """A record of the offsets topic cannot be understood; its groups must not be served."""


class CommittedOffset(NamedTuple):
    """Where a group goes on in a partition: `offset` is the next record that it wants."""

    offset: int
    leader_epoch: int = -1
    """Leader epoch of the last record consumed, -1 when the consumer did not say."""
    metadata: str = ""
    commit_wall_ms: int = 0


class OffsetWritten(NamedTuple):
    """A group has committed an offset."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetForgotten(NamedTuple):
    """A committed offset has expired or been deleted."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as its generation began, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A generation: complete with assignments, or without members when the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader_id: str | None
    state_wall_ms: int
    members: tuple[StoredMember, ...]


class GroupWritten(NamedTuple):
    """A generation has its assignment, or a group has become empty."""

    group_id: str
    stored: StoredGroup


class GroupForgotten(NamedTuple):
    """A group is gone."""

    group_id: str


class UnknownRecord(NamedTuple):
    """A record of a kind that this coordinator does not know; `note` says why."""

    note: str


GroupRecord = OffsetWritten | OffsetForgotten | GroupWritten | GroupForgotten
"""What a coordinator writes."""


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The record's key and value; the value is None for a tombstone."""
    match record:
        case OffsetWritten():
            return _offset_key(record), _offset_value(record.committed)
        case OffsetForgotten():
            return _offset_key(record), None
        case GroupWritten():
            return _group_key(record), _group_value(record.stored)
        case GroupForgotten():
            return _group_key(record), None


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | UnknownRecord:
    """A record from its key and value. Raises `UnreadableRecord`."""
    if key is None or len(key) < _VERSION.size:
        return UnknownRecord(f"the key {key!r} is too short to name its version")
    version = key[0] << 8 | key[1]
    try:
        if version <= KEY_VERSION_OFFSET:
            group_id, topic, partition = _read_offset_key(key)
            if value is None:
                return OffsetForgotten(group_id, topic, partition)
            return OffsetWritten(group_id, topic, partition, _read_offset_value(value))
        if version == KEY_VERSION_GROUP:
            cursor = Cursor(key, _VERSION.size)
            group_id = cursor.string()
            cursor.end()
            if value is None:
                return GroupForgotten(group_id)
            return GroupWritten(group_id, _read_group_value(value))
    except (struct.error, ValueError) as error:
        raise UnreadableRecord(
            f"the record of the offsets topic with key {key[:200]!r} is not understood ({error}); "
            "was this data directory written by a newer millrace?"
        ) from error
    return UnknownRecord(f"the key has version {version}; versions 0 to 2 are known here")


def _offset_key(record: OffsetWritten | OffsetForgotten) -> bytes:
    return (
        _VERSION.pack(KEY_VERSION_OFFSET)
        + pack_string(record.group_id)
        + pack_string(record.topic)
        + _PARTITION.pack(record.partition)
    )


def _read_offset_key(key: bytes) -> tuple[str, str, int]:
    size = len(key)
    cut = 4 + (key[2] << 8 | key[3]) if size >= 4 else size
    end = cut + 2 + (key[cut] << 8 | key[cut + 1]) if cut + 2 <= size else size
    if end + _PARTITION.size != size:
        raise ValueError("the key's lengths do not add up to its length")
    return key[4:cut].decode(), key[cut + 2 : end].decode(), _PARTITION.unpack_from(key, end)[0]


def _offset_value(committed: CommittedOffset) -> bytes:
    text = committed.metadata.encode()
    return (
        _OFFSET_HEAD.pack(VALUE_VERSION, committed.offset, committed.leader_epoch, len(text))
        + text
        + _TIME.pack(committed.commit_wall_ms)
    )


def _read_offset_value(value: bytes) -> CommittedOffset:
    version, offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value)
    _check_version(version)
    end = _OFFSET_HEAD.size + length
    if length < 0 or end + _TIME.size != len(value):
        raise ValueError(f"a text of {length} bytes in a value of {len(value)}")
    text = value[_OFFSET_HEAD.size : end].decode() if length else ""
    return CommittedOffset(offset, leader_epoch, text, _TIME.unpack_from(value, end)[0])


def _group_key(record: GroupWritten | GroupForgotten) -> bytes:
    return _VERSION.pack(KEY_VERSION_GROUP) + pack_string(record.group_id)


def _group_value(stored: StoredGroup) -> bytes:
    parts = [
        _VERSION.pack(VALUE_VERSION),
        pack_string(stored.protocol_type),
        _PARTITION.pack(stored.generation),
        pack_string(stored.protocol),
        pack_string(stored.leader_id),
        _TIME.pack(stored.state_wall_ms),
        _PARTITION.pack(len(stored.members)),
    ]
    for member in stored.members:
        parts += (
            pack_string(member.member_id),
            pack_string(member.instance_id),
            pack_string(member.client_id),
            pack_string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            pack_bytes(member.subscription),
            pack_bytes(member.assignment),
        )
    return b"".join(parts)


def _read_group_value(value: bytes) -> StoredGroup:
    _check_version(_VERSION.unpack_from(value)[0])
    cursor = Cursor(value, _VERSION.size)
    protocol_type = cursor.string()
    generation = cursor.i32()
    protocol, leader_id = cursor.nullable_string(), cursor.nullable_string()
    state_wall_ms = cursor.i64()
    members = tuple(_read_member(cursor) for _ in range(cursor.i32()))
    cursor.end()
    return StoredGroup(protocol_type, generation, protocol, leader_id, state_wall_ms, members)


def _read_member(cursor: Cursor) -> StoredMember:
    return StoredMember(
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
