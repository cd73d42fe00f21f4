"""The contract between a coordinator and the runtime that hosts it.

A coordinator keeps its state in the partitions of an internal topic. Each partition has one shard:
a pure state machine that takes events and returns effects, which the runtime carries out. Source:
Kafka's `CoordinatorShard` and `CoordinatorRuntime` (KIP-848).

    event ──► shard ──► Append ──► partition ──► high watermark ──► on_appended ──► replay
                └─────► Reply                                             └───────► Reply

Durable state changes in `replay` alone, while a shard is loaded and afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from millrace_server.api_error import ApiError

R = TypeVar("R")
"""A record of the coordinator's topic."""
T = TypeVar("T")
"""A result of one of the coordinator's requests."""

Token = Hashable
"""What the runtime knows a pending request by; never None."""


class Moment(NamedTuple):
    """When an event happens, on both clocks of the machine.

    `now_ms` never goes back and decides timeouts. `wall_ms` may jump; it goes into records and
    decides retention.
    """

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Append(Generic[R]):
    """Records to append to the shard's partition as one batch.

    The runtime appends in the order of these effects. It calls `on_appended(append_id)` when the
    batch is below the high watermark, or `on_append_failed`; also in this order.
    """

    append_id: int
    records: tuple[R, ...]


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The response to the request that came with `token`; it waits for no effect beside it."""

    token: Token
    result: T | ApiError


AnyEffects = Sequence[Append[Any] | Reply[Any]]


class Effects(list["Append[R] | Reply[T]"], Generic[R, T]):
    """The effects of one event, in order, and the moment of the event."""

    __slots__ = ("moment",)

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self.moment = moment

    def reply(self, token: Token | None, result: T | ApiError) -> None:
        """Responds to a pending request; does nothing for a token of None."""
        if token is not None:
            if isinstance(result, ApiError):
                # A traceback would keep the frames of the event alive, in a reference cycle.
                result.__traceback__ = None
            self.append(Reply(token, result))


class UnknownRecord(NamedTuple):
    """A record of a kind that this version does not know; `note` says why."""

    note: str


class UnreadableRecord(Exception):
    """A record that should be known cannot be decoded: its shard must not be served."""


@dataclass(frozen=True, slots=True)
class RecordSerde(Generic[R]):
    """The bytes of the records of one coordinator: key and value, which is None for a tombstone.

    `encode` takes every record that a shard makes; `decode` raises `UnreadableRecord`.
    """

    encode: Callable[[R], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], R | UnknownRecord]


class CoordinatorShard(Protocol[R, T]):
    """The state of one partition of a coordinator's topic.

    Lifecycle: `replay` for each record of the partition, `on_loaded`, events, `on_unloaded`.
    The event of a request takes a token and a moment. Exactly one `Reply` has that token: among the
    effects of the event, or of a later one. The runtime itself replies to the requests that are
    pending when the shard is unloaded.
    """

    def replay(self, record: R) -> None:
        """Takes the next record of the partition."""

    def on_loaded(self, moment: Moment) -> Sequence[Append[R] | Reply[T]]:
        """The whole partition has been replayed."""

    def on_unloaded(self) -> None:
        """No event follows: releases what the shard shares, and its reference cycles."""

    def on_appended(self, append_id: int, moment: Moment) -> Sequence[Append[R] | Reply[T]]:
        """The append is durable. Raises `ValueError` if an older one is still pending."""

    def on_append_failed(
        self, append_id: int, error: ApiError, moment: Moment
    ) -> Sequence[Append[R] | Reply[T]]:
        """The append was not written and never will be."""

    def deadline_ms(self) -> int | None:
        """When `on_deadline` is to be called, on the clock of `Moment.now_ms`; None for never."""

    def on_deadline(self, moment: Moment) -> Sequence[Append[R] | Reply[T]]:
        """Does what is due at `moment`; an earlier call does nothing."""
