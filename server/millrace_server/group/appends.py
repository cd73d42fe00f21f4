"""Appends in flight: what each of them will change, and who waits for it.

Owns the numbers of appends and their order. Knows no rule of groups; `coordinator` acts on what
comes back from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.effects import (
    Append,
    GroupDeleted,
    Joined,
    PartitionOutcomes,
    Refusal,
    Token,
    Turn,
)
from millrace_server.group.records import GroupForgotten, GroupRecord, GroupWritten
from millrace_server.group.requests import OfferedProtocol


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """A generation gets its assignment; whose syncs wait is in the group."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticRestart:
    """A static member has a new id, for now only in memory; `before` is what to go back to."""

    group_id: str
    generation: int
    token: Token
    joined: Joined
    old_id: str
    new_id: str
    before: tuple[tuple[OfferedProtocol, ...], int, int]
    """Protocols, session timeout and rebalance timeout."""


@dataclass(slots=True)
class Change:
    """A commit or a deletion, perhaps in several appends; the last to come back answers it."""

    token: Token | None
    result: PartitionOutcomes | GroupDeleted | None
    appends_left: int = 1
    refused: ApiError | None = None
    is_commit: bool = False


Purpose = AssignmentStored | StaticRestart | Change


@dataclass(slots=True)
class InFlight:
    """One append that has not come back."""

    purpose: Purpose
    records: tuple[GroupRecord, ...]
    group_ids: tuple[str, ...] = field(default=())


class AppendsInFlight:
    """The appends of one coordinator that have not come back, oldest first."""

    __slots__ = ("_by_group", "_in_flight", "_next_id")

    def __init__(self) -> None:
        self._in_flight: dict[int, InFlight] = {}
        self._by_group: Counter[str] = Counter()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._in_flight)

    def start(self, turn: Turn, purpose: Purpose, records: Sequence[GroupRecord]) -> None:
        """Asks the shell for an append."""
        append_id = self._next_id
        self._next_id += 1
        group_ids = tuple({record.group_id: None for record in records})
        self._in_flight[append_id] = InFlight(purpose, tuple(records), group_ids)
        for group_id in group_ids:
            self._by_group[group_id] += 1
        turn.effects.append(Append(append_id, tuple(records)))

    def finish(self, append_id: int, *, durable: bool) -> InFlight:
        """Forgets an append that has come back. Raises `ValueError` for one that cannot have.

        Durable appends come back in their order, because a log is durable up to a point.
        """
        if append_id not in self._in_flight:
            raise ValueError(f"append {append_id} is not in flight")
        oldest = next(iter(self._in_flight))
        if durable and append_id != oldest:
            raise ValueError(f"append {append_id} is durable before the older append {oldest}")
        done = self._in_flight.pop(append_id)
        for group_id in done.group_ids:
            self._by_group[group_id] -= 1
            if not self._by_group[group_id]:
                del self._by_group[group_id]
        return done

    def drain(self) -> list[InFlight]:
        """Forgets all of them."""
        drained = list(self._in_flight.values())
        self._in_flight.clear()
        self._by_group.clear()
        return drained

    def touch(self, group_id: str) -> bool:
        """Whether something about the group is in flight."""
        return group_id in self._by_group

    def group_ids(self) -> list[str]:
        """The groups that something is in flight about."""
        return list(self._by_group)

    def offsets_of(self, group_id: str) -> set[tuple[str, int]]:
        """Partitions of the group whose offset is being written or forgotten."""
        if group_id not in self._by_group:
            return set()
        return {
            (record.topic, record.partition)
            for entry in self._in_flight.values()
            if group_id in entry.group_ids
            for record in entry.records
            if not isinstance(record, GroupWritten | GroupForgotten) and record.group_id == group_id
        }

    def stores_assignment(self, group_id: str, generation: int) -> bool:
        """Whether the leader's assignment of that generation is being written."""
        return group_id in self._by_group and any(
            isinstance(entry.purpose, AssignmentStored)
            and entry.purpose.group_id == group_id
            and entry.purpose.generation == generation
            for entry in self._in_flight.values()
        )


_NOT_LED_HERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})


def failed_group_write(refused: ApiError) -> Refusal:
    """What members are told when the record of their group cannot be written, as Kafka has it."""
    code = refused.code
    if code in _NOT_LED_HERE:
        code = ErrorCode.NOT_COORDINATOR
    elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif code is ErrorCode.REQUEST_TIMED_OUT:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    elif code is ErrorCode.MESSAGE_TOO_LARGE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return Refusal.saying(code, f"The group's record could not be written: {refused.message}")


def failed_offset_write(refused: ApiError) -> Refusal:
    """What a commit or a deletion is told when it cannot be written, as Kafka has it."""
    code = refused.code
    if code in _NOT_LED_HERE:
        code = ErrorCode.NOT_COORDINATOR
    elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif code is ErrorCode.MESSAGE_TOO_LARGE:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return Refusal.saying(code, f"The offsets could not be written: {refused.message}")
