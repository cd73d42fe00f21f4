"""Records of the offsets topic: Kafka's bytes, and what is done with bytes that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.coordinator.shard import UnknownRecord, UnreadableRecord
from millrace_server.group.image import GroupsImage, held_bytes
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import (
    CommittedOffset,
    GroupMetadataRecord,
    GroupMetadataTombstone,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    OffsetCommitTombstone,
    decode_record,
    encode_record,
    java_string_hash,
    partition_for_group,
)
from millrace_server.group_config import GroupConfig

TEXT = st.text(max_size=20)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=I32,
    session_timeout_ms=I32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
RECORDS = st.one_of(
    st.builds(OffsetCommitRecord, TEXT, TEXT, I32, st.builds(CommittedOffset, I64, I32, TEXT, I64)),
    st.builds(OffsetCommitTombstone, TEXT, TEXT, I32),
    st.builds(
        GroupMetadataRecord,
        TEXT,
        st.builds(
            GroupMetadataValue,
            TEXT,
            I32,
            st.none() | TEXT,
            st.none() | TEXT,
            I64,
            st.lists(MEMBERS, max_size=3).map(tuple),
        ),
    ),
    st.builds(GroupMetadataTombstone, TEXT),
)

OFFSET_KEY = bytes.fromhex("0001 0001 67 0002 7470 00000007")
OFFSET_VALUE = bytes.fromhex("0003 000000000000002a 00000005 0002 6869 0000018bcfe56800")
GROUP_KEY = bytes.fromhex("0002 0001 67")
GROUP_VALUE = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000018bcfe56800 00000001"
    "0001 6d ffff 0001 63 0001 68 0000ea60 00002710 00000002 0102 00000001 03"
)
EMPTY_GROUP_VALUE = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000005 ffff ffff 0000018bcfe56800 00000000"
)


def test_a_committed_offset_has_the_bytes_of_kafka() -> None:
    record = OffsetCommitRecord("g", "tp", 7, CommittedOffset(42, 5, "hi", 1_700_000_000_000))
    assert encode_record(record) == (OFFSET_KEY, OFFSET_VALUE)
    assert decode_record(OFFSET_KEY, OFFSET_VALUE) == record


def test_a_generation_has_the_bytes_of_kafka() -> None:
    member = MemberMetadata("m", None, "c", "h", 60_000, 10_000, b"\1\2", b"\3")
    stored = GroupMetadataValue("consumer", 4, "range", "m", 1_700_000_000_000, (member,))
    assert encode_record(GroupMetadataRecord("g", stored)) == (GROUP_KEY, GROUP_VALUE)
    assert decode_record(GROUP_KEY, GROUP_VALUE) == GroupMetadataRecord("g", stored)


def test_an_empty_group_has_the_bytes_of_kafka() -> None:
    stored = GroupMetadataValue("consumer", 5, None, None, 1_700_000_000_000, ())
    assert encode_record(GroupMetadataRecord("g", stored)) == (GROUP_KEY, EMPTY_GROUP_VALUE)
    assert decode_record(GROUP_KEY, EMPTY_GROUP_VALUE) == GroupMetadataRecord("g", stored)


def test_a_tombstone_is_a_null_value() -> None:
    assert encode_record(OffsetCommitTombstone("g", "tp", 7)) == (OFFSET_KEY, None)
    assert encode_record(GroupMetadataTombstone("g")) == (GROUP_KEY, None)
    assert decode_record(OFFSET_KEY, None) == OffsetCommitTombstone("g", "tp", 7)
    assert decode_record(GROUP_KEY, None) == GroupMetadataTombstone("g")


def test_a_key_of_version_0_is_an_offset_as_well() -> None:
    found = decode_record(b"\0\0" + OFFSET_KEY[2:], OFFSET_VALUE)
    assert isinstance(found, OffsetCommitRecord)
    assert found.committed.offset == 42


@given(RECORDS)
def test_what_is_written_is_read(record: GroupRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(key, value) == record


@given(RECORDS, st.data())
def test_a_record_that_is_cut_short_is_refused_in_a_sentence(
    record: GroupRecord, data: st.DataObject
) -> None:
    key, value = encode_record(record)
    cut_key = key[: data.draw(st.integers(2, len(key) - 1), label="key")]
    with pytest.raises(UnreadableRecord, match="not understood"):
        decode_record(cut_key, value)
    if value is not None:
        cut_value = value[: data.draw(st.integers(0, len(value) - 1), label="value")]
        with pytest.raises(UnreadableRecord, match="not understood"):
            decode_record(key, cut_value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY + b"\0", OFFSET_VALUE),
        (OFFSET_KEY, OFFSET_VALUE + b"\0"),
        (OFFSET_KEY, b"\0\4" + OFFSET_VALUE[2:]),
        (GROUP_KEY + b"\0", GROUP_VALUE),
        (GROUP_KEY, GROUP_VALUE + b"\0"),
        (GROUP_KEY, b"\0\4" + GROUP_VALUE[2:]),
        (b"\0\2\xff\xff", GROUP_VALUE),
        (b"\0\2\0\1\xff", GROUP_VALUE),
        (b"\0\1\xff\xff" + OFFSET_KEY[4:], OFFSET_VALUE),
    ],
)
def test_bytes_that_mean_nothing_are_never_passed_over(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(key, value)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\3", b"\0\6\0\1g", b"\xff\xff"])
def test_a_key_of_another_kind_is_passed_over_with_a_note(key: bytes | None) -> None:
    found = decode_record(key, b"whatever")
    assert isinstance(found, UnknownRecord)
    assert "key" in found.note


@given(st.lists(RECORDS, max_size=20), st.randoms())
def test_a_compacted_topic_gives_the_same_image(records: list[GroupRecord], rng: object) -> None:
    whole, compacted = (GroupsImage(MemoryQuota(GroupConfig())) for _ in range(2))
    latest = {}
    for record in records:
        whole.replay(record)
        latest[encode_record(record)[0]] = record
    for record in latest.values():
        compacted.replay(record)
    assert whole == compacted
    assert whole.offsets_bytes == compacted.offsets_bytes
    assert whole.offsets_bytes == sum(
        held_bytes(committed)
        for topics in whole.offsets.values()
        for partitions in topics.values()
        for committed in partitions.values()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Published values of java.lang.String.hashCode.
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_names_hash_as_they_do_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_a_group_lies_where_kafka_puts_it() -> None:
    assert partition_for_group("hello", 50) == 99162322 % 50
    assert partition_for_group("Hello World", 50) == 862545276 % 50
    assert partition_for_group("polygenelubricants", 50) == 0
    assert {partition_for_group(f"group-{number}") for number in range(1000)} == set(range(50))
