"""Records of the metadata log: written records are read equal, other bytes are a typed error."""

from __future__ import annotations

import uuid

import pytest

from millrace_protocol.metadata_records import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    LeaderChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuorumVoter,
    QuotaEntityName,
    RegisterBrokerRecord,
    RegisteredListener,
    RemoveAccessControlEntryRecord,
    RemovedTopicsRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ScramCredentialRecord,
    ScramSecretRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    encode_metadata_record,
)
from millrace_server.metadata.records import UnreadableMetadata, decode_record

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
LISTENERS = (RegisteredListener("p", "h", 9092, False), RegisteredListener("t", "h", 9094, True))
SAMPLES: list[tuple[MetadataRecord, str]] = [
    (ClusterRecord(A, 1), "0001 0000" + A.hex + "0001"),
    (
        RegisterBrokerRecord(3, 7, A, "h", 9092, None, (B,), "i", 9093, LISTENERS),
        "0002 0002 00000003 0000000000000007"
        + A.hex
        + "0001 68 2384 ffff 00000001"
        + B.hex
        + "0001 69 2385 00000002"
        + "0001 70 0001 68 2384 00 0001 74 0001 68 2386 01",
    ),
    (
        BrokerRegistrationChangeRecord(3, 7, is_fenced=True, in_controlled_shutdown=True),
        "0003 0001 00000003 0000000000000007 01 01",
    ),
    (TopicRecord("t", A), "0004 0000 0001 74" + A.hex),
    (
        PartitionRecord(
            A, 0, (3, 4), (3,), 3, 5, 6, (B, uuid.UUID(int=0)), (4,), (), (4,), (3,), 2
        ),
        "0005 0002" + A.hex + "00000000 00000002 00000003 00000004 00000001 00000003 00000003"
        "00000005 00000006 00000002" + B.hex + "00" * 16 + "00000001 00000004 00000000"
        "00000001 00000004 00000001 00000003 00000002",
    ),
    (
        PartitionChangeRecord(A, 0, None, (3,), -2, None, (), (4,), None, None),
        "0006 0001" + A.hex + "00000000 ffffffff 00000001 00000003 fffffffe ffffffff"
        "00000000 00000001 00000004 ffffffff ffffffff",
    ),
    (ConfigRecord(A, "k", None), "0007 0000" + A.hex + "0001 6b ffff"),
    (RemoveTopicRecord(A), "0008 0000" + A.hex),
    (ProducerIdsRecord(3, 7, 1000), "0009 0000 00000003 0000000000000007 00000000000003e8"),
    (SnapshotHeaderRecord(9), "000a 0000 0000000000000009"),
    (RemovedTopicsRecord((A, B)), "000b 0000 00000002" + A.hex + B.hex),
    (SnapshotFooterRecord(4), "000c 0000 0000000000000004"),
    (UnregisterBrokerRecord(3, 7), "000d 0000 00000003 0000000000000007"),
    (
        VotersRecord((QuorumVoter(3, A, "h", 9093),)),
        "000e 0000 00000001 00000003" + A.hex + "0001 68 2385",
    ),
    (LeaderChangeRecord(3, (3, 4)), "000f 0000 00000003 00000002 00000003 00000004"),
    (
        AccessControlEntryRecord(2, 4, "t", "User:u", "*", 3, 3),
        "0010 0000 02 04 0001 74 0006 557365723a75 0001 2a 03 03",
    ),
    (
        RemoveAccessControlEntryRecord(2, 4, "t", "User:u", "*", 3, 3),
        "0011 0000 02 04 0001 74 0006 557365723a75 0001 2a 03 03",
    ),
    (
        ScramCredentialRecord("u", 1, b"s", b"k", b"l", 4096),
        "0012 0000 0001 75 01 00000001 73 00000001 6b 00000001 6c 00001000",
    ),
    (RemoveScramCredentialRecord("u", 2), "0013 0000 0001 75 02"),
    (ScramSecretRecord(b"s"), "0015 0000 00000001 73"),
    (
        ClientQuotaRecord((QuotaEntityName("user", None),), "k", 1.5, False),
        "0016 0000 00000001 0004 75736572 ffff 0001 6b 3ff8000000000000 00",
    ),
]
OLDER: list[tuple[MetadataRecord, str]] = [
    (
        RegisterBrokerRecord(3, 7, A, "h", 9092, None, (B,), "i", 9093),
        "0002 0001 00000003 0000000000000007"
        + A.hex
        + "0001 68 2384 ffff 00000001"
        + B.hex
        + "0001 69 2385",
    ),
    (
        RegisterBrokerRecord(3, 7, A, "h", 9092, None, (B,)),
        "0002 0000 00000003 0000000000000007" + A.hex + "0001 68 2384 ffff 00000001" + B.hex,
    ),
    (
        BrokerRegistrationChangeRecord(3, 7, is_fenced=True),
        "0003 0000 00000003 0000000000000007 01",
    ),
    (
        PartitionRecord(A, 0, (3, 4), (3,), 3, 5, 6, (B, uuid.UUID(int=0))),
        "0005 0000" + A.hex + "00000000 00000002 00000003 00000004 00000001 00000003 00000003"
        "00000005 00000006 00000002" + B.hex + "00" * 16,
    ),
    (
        PartitionRecord(A, 0, (3, 4), (3,), 3, 5, 6, (B, uuid.UUID(int=0)), (4,), (), (4,), (3,)),
        "0005 0001" + A.hex + "00000000 00000002 00000003 00000004 00000001 00000003 00000003"
        "00000005 00000006 00000002" + B.hex + "00" * 16 + "00000001 00000004 00000000"
        "00000001 00000004 00000001 00000003",
    ),
    (
        PartitionChangeRecord(A, 0, None, (3,), -2, None),
        "0006 0000" + A.hex + "00000000 ffffffff 00000001 00000003 fffffffe ffffffff",
    ),
]
"""Every version that is no longer written."""


def test_every_type_of_record_has_a_sample() -> None:
    assert [type(record) for record, _ in SAMPLES] == [cls for cls, _ in RECORD_TYPES.values()]


@pytest.mark.parametrize(("record", "shown"), SAMPLES, ids=lambda value: type(value).__name__)
def test_a_record_has_the_bytes_that_are_written_down(record: MetadataRecord, shown: str) -> None:
    value = bytes.fromhex(shown)
    assert encode_metadata_record(record) == value
    assert decode_record(value) == record


def test_every_version_that_is_no_longer_written_has_a_sample() -> None:
    olds = [cls for cls, newest in RECORD_TYPES.values() for _ in range(newest)]
    assert [type(record) for record, _ in OLDER] == olds


@pytest.mark.parametrize(("record", "shown"), OLDER, ids=lambda value: type(value).__name__)
def test_a_record_of_an_older_millrace_is_read(record: MetadataRecord, shown: str) -> None:
    """W-9.5"""
    assert decode_record(bytes.fromhex(shown)) == record


@pytest.mark.parametrize(
    ("record", "shown"), [*SAMPLES, *OLDER], ids=lambda value: type(value).__name__
)
def test_a_record_that_is_cut_short_or_too_long_is_malformed(
    record: MetadataRecord, shown: str
) -> None:
    value = bytes.fromhex(shown)
    for end in range(len(value)):
        with pytest.raises(UnreadableMetadata, match="is malformed"):
            decode_record(value[:end])
    with pytest.raises(UnreadableMetadata, match="is malformed"):
        decode_record(value + b"\0")


@pytest.mark.parametrize("value", [None, b"", b"\0\1\0"])
def test_a_value_without_type_and_version_is_malformed(value: bytes | None) -> None:
    with pytest.raises(UnreadableMetadata, match="is malformed"):
        decode_record(value)


@pytest.mark.parametrize(
    "shown",
    ["0014 0000", "0000 0000", "ffff 0000", "0001 0001", "0005 0003", "0001 ffff", "7b22 7479"],
)
def test_an_unknown_type_or_version_names_a_newer_millrace(shown: str) -> None:
    """W-9.5"""
    with pytest.raises(UnreadableMetadata, match="newer millrace; start that one"):
        decode_record(bytes.fromhex(shown))
