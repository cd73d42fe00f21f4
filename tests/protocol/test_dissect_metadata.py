"""The metadata log explained: type, version and every field of each record."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from millrace_protocol.dissect import Span, dissect, dissect_segment, is_metadata_file, render
from millrace_protocol.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    QuorumVoter,
    SnapshotHeaderRecord,
    TopicRecord,
    VotersRecord,
    encode_metadata_record,
)
from millrace_protocol.records import encode_batch

LOG = "data/__cluster_metadata-0/00000000000000000000.log"
SNAPSHOT = "00000000000000000007.checkpoint"
T = uuid.UUID(int=7)


def explained(*records: MetadataRecord, name: str = LOG) -> list[Span]:
    values = [encode_metadata_record(record) for record in records]
    return list(dissect(encode_batch(values, timestamps_ms=1), file_name=name))


@pytest.mark.parametrize("name", [LOG, SNAPSHOT])
def test_each_record_shows_its_type_its_version_and_every_field(name: str) -> None:
    (batch,) = explained(
        TopicRecord("t", T),
        PartitionRecord(T, 3, (1, 2), (1,), 1, 5, 6, (T, uuid.UUID(int=0))),
        name=name,
    )
    assert not list(batch.faults())
    found = {s.name.removeprefix("batch[0]."): s.value for s in batch.leaves()}
    assert found["records[0].value.type"] == 4
    assert found["records[0].value.version"] == 0
    assert found["records[0].value.name"] == "t"
    assert found["records[0].value.topic_id"] == T
    partition = {k.rpartition("value.")[2]: v for k, v in found.items() if "records[1]" in k}
    expected = {"partition": 3, "replicas[1]": 2, "isr[0]": 1, "leader": 1, "leader_epoch": 5}
    expected |= {"partition_epoch": 6, "isr.count": 1}
    assert {k: partition[k] for k in expected} == expected
    assert partition["directory_ids[0]"] == T
    shown = "\n".join(render([batch]))
    assert "PartitionRecord" in shown
    assert "records[1].value.leader_epoch = 5  int32" in shown


def test_an_unknown_type_is_a_fault_at_its_value_and_the_others_are_shown() -> None:
    known = encode_metadata_record(SnapshotHeaderRecord(9))
    data = encode_batch([b"\x7f\xff\0\0more", known], timestamps_ms=1)
    (batch,) = dissect(data, file_name=LOG)
    (fault,) = batch.faults()
    assert "type 32767 is not known" in fault.fault
    assert next(s.value for s in batch.leaves() if s.name.endswith("end_offset")) == 9


def test_the_voters_of_a_record_are_shown_one_by_one() -> None:
    (batch,) = explained(VotersRecord((QuorumVoter(1, T, "a", 9093), QuorumVoter(2, T, "b", 9094))))
    found = {s.name.rpartition("value.")[2]: s.value for s in batch.leaves()}
    assert found["voters.count"] == 2
    assert (found["voters[0].directory_id"], found["voters[1].host"]) == (T, "b")


def test_a_record_of_an_older_version_is_shown_with_the_fields_of_that_version() -> None:
    value = bytes.fromhex("0003 0000 00000003 0000000000000007 01")
    (batch,) = dissect(encode_batch([value], timestamps_ms=1), file_name=LOG)
    assert not list(batch.faults())
    shown = [s.name.rpartition("value.")[2] for s in batch.leaves() if ".value." in s.name]
    assert shown[1:] == ["type", "version", "broker_id", "broker_epoch", "is_fenced"]


def test_a_field_that_is_cut_short_is_a_fault() -> None:
    value = encode_metadata_record(ConfigRecord(T, "retention.ms", "1"))[:-1]
    (batch,) = dissect(encode_batch([value], timestamps_ms=1), file_name=LOG)
    assert [fault.name for fault in batch.faults()] == ["batch[0].records[0].value.value"]


@pytest.mark.parametrize(
    ("path", "is_metadata"),
    [
        (LOG, True),
        (SNAPSHOT, True),
        (str(Path("/d") / "__cluster_metadata-0" / "1.log"), True),
        ("data/t-0/00000000000000000000.log", False),
        ("00000000000000000000.log", False),
    ],
)
def test_a_file_of_the_metadata_is_known_by_its_path(path: str, is_metadata: bool) -> None:
    assert is_metadata_file(path) is is_metadata


def test_values_of_other_topics_are_bytes() -> None:
    value = encode_metadata_record(TopicRecord("t", T))
    (batch,) = dissect_segment(encode_batch([value], timestamps_ms=1))
    found = batch.find("batch[0].records[0].value")
    assert found is not None and bytes(found.value) == value  # type: ignore[call-overload]
