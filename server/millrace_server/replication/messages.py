"""What follower and leader tell each other, as values: no encoding, no connection.

Followers pull. A position says how far a follower's log is as durable as the topic demands, so it
is the acknowledgement of everything before `fetch_offset` as well.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.log.epochs import EpochEnd

UNKNOWN_OFFSET = -1


class PartitionKey(NamedTuple):
    """A partition of a topic."""

    topic_id: uuid.UUID
    partition: int


class BrokerKey(NamedTuple):
    """One process of a broker: `epoch` is that of its registration."""

    broker_id: int
    epoch: int


class FetchPosition(NamedTuple):
    """Where a follower's log ends, and the leader epoch that the follower knows.

    `last_epoch` is the epoch of the record before `fetch_offset`, which may be deleted. It is
    `NO_EPOCH` if the follower does not know it. No record before `log_start_offset` comes back to
    the follower's log.
    """

    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Names the partitions that are new to the leader or have moved; it remembers the others.

    `is_first` begins a session: the leader remembers nothing. `forgotten` are fetched no longer.
    """

    follower: BrokerKey
    is_first: bool
    positions: tuple[tuple[PartitionKey, FetchPosition], ...]
    forgotten: tuple[PartitionKey, ...]
    max_wait_ms: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Records:
    """The batches from `offset` on. `data` is the shell's; None if there are none."""

    offset: int
    data: object | None = None


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's log has records that the leader's has not: up to `end` they may agree."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The leader's log does not go on where the follower's ends, and begins at `start_offset`."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The leader does not serve this follower, or not in this epoch."""

    code: ErrorCode


FetchOutcome = Records | Diverging | OutOfRange | Refused


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What a response says of one partition: the outcome, and two offsets of the leader's log,
    `UNKNOWN_OFFSET` if it is refused."""

    outcome: FetchOutcome
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
