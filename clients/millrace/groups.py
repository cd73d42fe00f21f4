"""Consumer groups: committed offsets, members, and their assignments.

Owns the values that consumers and the admin client return.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from millrace.errors import MemberFenced, MillraceError, NotAssigned, again
from millrace.records import TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What became of the commit of one partition.

    `generation` is the one that committed, -1 without membership. The sentence of `error` names
    the generation or the member that holds instead.
    """

    offset: int
    metadata: str = ""
    generation: int = -1
    error: MillraceError | None = None

    @property
    def is_committed(self) -> bool:
        """Whether the offset is durable."""
        return self.error is None

    @property
    def is_fenced(self) -> bool:
        """Whether another member has the partition: committing again cannot help."""
        return isinstance(self.error, MemberFenced | NotAssigned)

    @property
    def is_retriable(self) -> bool:
        """Whether the same commit may succeed later; the time for this one is over."""
        return self.error is not None and self.error.retriable


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """How far a group has come in a partition: `offset` is the next record to process."""

    offset: int
    metadata: str
    leader_epoch: int
    commit_time_ms: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `protocol_type` is empty where no member committed the offsets."""

    group: str
    state: str
    protocol_type: str
    members: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member: what it subscribes to, and what it has.

    `topics` and `assignment` are empty for a group that is not stable or not of consumers.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members; Dead, without members, where there is no such group."""

    group: str
    state: str
    generation: int
    protocol_type: str
    assignor: str
    leader: str | None
    members: tuple[MemberDescription, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one group, or of one partition of it: `error`, or None and a `value`."""

    value: T | None = None
    error: MillraceError | None = None

    def unwrap(self) -> T:
        """The value. Raises the error."""
        if self.error is not None:
            raise again(self.error)
        assert self.value is not None
        return self.value
