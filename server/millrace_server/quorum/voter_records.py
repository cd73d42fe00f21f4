"""Voter sets as the metadata log keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace_protocol.metadata_records import QuorumVoter, VotersRecord, encode_metadata_record
from millrace_protocol.records.encode import Record
from millrace_server.metadata.records import decode_record
from millrace_server.raft.voters import ReplicaKey, Voter, VoterSet

_TYPE = encode_metadata_record(VotersRecord(()))[:2]
"""The type of a record stands in its first bytes: few records need to be decoded."""


def voter_set(voters: Iterable[QuorumVoter]) -> VoterSet:
    """The set that a record holds."""
    return VoterSet.of(
        Voter(ReplicaKey(v.broker_id, v.directory_id), v.host, v.port) for v in voters
    )


def voters_record(voters: VoterSet) -> VotersRecord:
    """The record of a set."""
    return VotersRecord(
        tuple(
            QuorumVoter(voter.key.broker_id, voter.key.directory_id, voter.host, voter.port)
            for voter in voters.voters
        )
    )


def voter_sets(records: Iterable[Record]) -> Iterator[tuple[int, VoterSet]]:
    """The voter sets among records of the log, each with its offset.

    Raises `UnreadableMetadata`.
    """
    for offset, _, _, value, _ in records:
        if value is not None and value[: len(_TYPE)] == _TYPE:
            record = decode_record(value)
            assert isinstance(record, VotersRecord)
            yield offset, voter_set(record.voters)
