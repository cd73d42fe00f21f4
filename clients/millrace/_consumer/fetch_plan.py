"""The next requests of a consumer: fetches, lookups of offsets, validations, and metadata.

Plain values; `positions` makes them and `fetcher` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from millrace._consumer.partition_state import PartitionState
from millrace.records import TopicPartition
from millrace_protocol.messages.fetch import FetchRequest
from millrace_protocol.messages.leader_epochs import EpochPartition, OffsetForLeaderEpochRequest
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.schema import Request


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch from one broker; ends in `on_fetched` or `on_fetch_failed`.

    `asked` are the partitions in the request's order, each with its version.
    """

    node_id: int
    hot: bool
    request: FetchRequest
    asked: tuple[tuple[PartitionState, int], ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Offsets to look up at one broker; ends in `on_looked_up` or `on_lookup_failed`.

    `asked` are the partitions in the request's order, each with its version.
    """

    node_id: int
    request: ListOffsetsRequest
    asked: tuple[tuple[PartitionState, int], ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """Positions to be validated by one broker; ends in `on_validated` or `on_validation_failed`.

    `asked` are the partitions in the request's order, each with its version and leader epoch.
    """

    node_id: int
    request: OffsetForLeaderEpochRequest
    asked: tuple[tuple[PartitionState, int, int], ...]


@dataclass(slots=True)
class Plan:
    """The requests to send now, and the time of the next plan (None: after the next event)."""

    fetches: list[Fetch] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    unknown_topics: set[str] = field(default_factory=set)
    deadline_ms: int | None = None


class OffsetReset(NamedTuple):
    """A partition went on elsewhere because its position was not in the log."""

    where: TopicPartition
    offset: int
    sentence: str


def lookups_of(node_id: int, states: list[PartitionState]) -> list[Lookup]:
    """Requests for one broker, each with as many partitions as a request may name (W-6.4)."""
    found = []
    for start in range(0, len(states), Request.array_max):
        asked = states[start : start + Request.array_max]
        questions = []
        for state in asked:
            assert state.reset is not None
            state.in_flight = True
            questions.append(ListOffsetsPartition(*state.where, state.reset))
        request = ListOffsetsRequest(tuple(questions))
        found.append(Lookup(node_id, request, tuple((state, state.version) for state in asked)))
    return found


def validations_of(node_id: int, states: list[tuple[PartitionState, int]]) -> list[Validation]:
    """Requests for one broker, each with as many partitions as a request may name (W-6.4)."""
    found = []
    for start in range(0, len(states), Request.array_max):
        asked = states[start : start + Request.array_max]
        questions = []
        for state, leader_epoch in asked:
            state.in_flight = True
            epoch = state.epochs.before(state.fetch_offset)
            questions.append(EpochPartition(*state.where, leader_epoch, epoch))
        request = OffsetForLeaderEpochRequest(tuple(questions))
        named = tuple((state, state.version, epoch) for state, epoch in asked)
        found.append(Validation(node_id, request, named))
    return found
