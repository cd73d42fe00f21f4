"""What a leader remembers of one follower's connection (KIP-227, the connection is the session).

Owns which partitions the follower waits for, and which of them have something to tell. Refuses to
know bytes: the shell reads the records.

    on_request(request)          a fetch came in; responses go out in the order of the requests
    on_appended(key)             the log of a partition has grown
    on_offsets_moved(key)        its high watermark or its log start has moved
    on_leader_changed(key)       this broker leads it in another epoch, or leads it no more
    is_due(now_ms)               whether to respond to the oldest request now
    next_result() put_back()     its response, a partition at a time, while it has room
    end_response()

    named ──► waiting ──► told of a high watermark: goes on waiting
                     └──► told of anything else: forgotten until the follower names it again

The follower cannot have moved before it has seen the records that were sent. So a partition that it
has not named since is not read again, and an idle partition costs a fetch nothing: every method
touches the partitions that it names and those with something to tell.

A second request may come while the first is held back: the first is answered at once with what
there is, and the second takes effect after that. So a response answers no name of a later request.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from millrace_protocol.errors import ErrorCode
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import LeaderEffect
from millrace_server.replication.leader import PartitionLeader
from millrace_server.replication.messages import (
    BrokerKey,
    FetchOutcome,
    FetchPosition,
    FetchRequest,
    FetchResult,
    PartitionKey,
    Records,
    Refused,
)
from millrace_server.token_bucket import TokenBucket

REQUESTS_MAX: Final = 2
"""Requests of one connection without a response."""

FindLeader = Callable[[PartitionKey], PartitionLeader | ErrorCode]
"""The leader of a partition on this broker, or why there is none."""
Effects = list[tuple[PartitionKey, LeaderEffect]]


class SessionRefused(Exception):
    """The peer broke a bound of the session; the connection ends."""


class FetchSession:
    """One connection. A partition is in `_ready`, `_quiet` or `_throttled` only while it waits."""

    def __init__(
        self,
        number: int,
        find: FindLeader,
        config: ReplicationConfig,
        throttle: TokenBucket | None = None,
    ) -> None:
        """`number` is higher than that of every connection that the broker accepted before."""
        self._number = number
        self._find = find
        self._config = config
        self._throttle = throttle
        self._waiting: dict[PartitionKey, FetchPosition] = {}
        self._told: dict[PartitionKey, tuple[int, int, int]] = {}
        """Leader epoch, high watermark and log start that the follower was told last."""
        self._ready: OrderedDict[PartitionKey, None] = OrderedDict()
        self._quiet: dict[PartitionKey, None] = {}
        self._quiet_ms: int | None = None
        """When those in `_quiet` are told of their offsets, None if none is in it."""
        self._throttled: dict[PartitionKey, None] = {}
        self._throttled_ms: int | None = None
        self._requests: deque[FetchRequest] = deque()
        self._deadline_ms = 0
        self._has_begun = False
        self._answered: dict[PartitionKey, FetchPosition] = {}
        """Those in the response that is being made."""

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def request(self) -> FetchRequest | None:
        """The oldest request without a response."""
        return self._requests[0] if self._requests else None

    def on_request(self, request: FetchRequest, now_ms: int) -> Effects:
        """Takes a request. Raises `SessionRefused`."""
        if len(self._requests) == REQUESTS_MAX:
            raise SessionRefused(f"more than {REQUESTS_MAX} fetches wait for their responses")
        if len(request.positions) > self._config.named_partitions_max:
            raise SessionRefused(
                f"a fetch names {len(request.positions)} partitions; at most "
                f"{self._config.named_partitions_max} are allowed"
            )
        if not (self._has_begun or request.is_first):
            # The follower counts on what another connection was told.
            raise SessionRefused("the first fetch of a connection does not say that it is one")
        self._has_begun = True
        self._requests.append(request)
        return self._begin(request, now_ms) if len(self._requests) == 1 else []

    def on_appended(self, key: PartitionKey) -> None:
        """The log of a partition has grown."""
        if key in self._waiting and key not in self._throttled:
            self._ready[key] = None

    def on_offsets_moved(self, key: PartitionKey, now_ms: int) -> None:
        """The high watermark of a partition, or the start of its log, has moved."""
        if key in self._waiting and key not in self._ready:
            self._quiet[key] = None
            if self._quiet_ms is None:
                self._quiet_ms = now_ms + self._config.high_watermark_wait_ms

    def on_leader_changed(self, key: PartitionKey) -> None:
        """The position that the follower named may be refused now."""
        if key in self._waiting:
            self._ready[key] = None

    def deadline_ms(self) -> int | None:
        """When `is_due` may become true without an event; None for never."""
        if not self._requests:
            return None
        moments = (self._deadline_ms, self._quiet_ms, self._throttled_ms)
        return min(moment for moment in moments if moment is not None)

    def is_due(self, now_ms: int) -> bool:
        """Whether the oldest request is to be answered now."""
        due_ms = self.deadline_ms()
        if due_ms is None:
            return False
        return bool(self._ready) or len(self._requests) > 1 or now_ms >= due_ms

    def next_result(self, now_ms: int) -> tuple[PartitionKey, FetchResult] | None:
        """The next partition of the response, None if no other has anything to tell.

        Of `Records` with an offset below the log's end the shell reads the batches, and then calls
        `on_sent`, or `put_back` if the response has no room for them, or it responds `Refused` if
        they cannot be read. No event comes in between.
        """
        self._take_due(now_ms)
        while self._ready and len(self._answered) < self._config.named_partitions_max:
            key, _ = self._ready.popitem(last=False)
            result = self._result(key, now_ms) if key in self._waiting else None
            if result is not None:
                return key, result
        return None

    def put_back(self, key: PartitionKey) -> None:
        """The response has no room for this partition: it is the first of the next one."""
        self._waiting[key] = self._answered.pop(key)
        self._told.pop(key, None)
        self._ready[key] = None
        self._ready.move_to_end(key, last=False)

    def on_sent(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """The response has so many bytes of records of a partition."""
        if self._throttle is not None and not self._is_in_sync(self._find(key)):
            self._throttle.take(size_bytes, now_ms=now_ms)

    def end_response(self, now_ms: int) -> Effects:
        """The response is complete: the next request takes effect. Raises `SessionRefused`."""
        self._requests.popleft()
        self._answered.clear()
        return self._begin(self._requests[0], now_ms) if self._requests else []

    def _begin(self, request: FetchRequest, now_ms: int) -> Effects:
        """A request takes effect: what it names counts as acknowledged, and waits."""
        if request.is_first:
            for names in (self._waiting, self._told, self._ready, self._quiet, self._throttled):
                names.clear()
        for key in request.forgotten:
            self._forget(key)
        count = len(self._waiting.keys() | dict(request.positions).keys())
        if count > self._config.session_partitions_max:
            raise SessionRefused(
                f"a connection fetches {count} partitions; at most "
                f"{self._config.session_partitions_max} are allowed"
            )
        self._deadline_ms = now_ms + min(request.max_wait_ms, self._config.fetch_wait_ms)
        effects: Effects = []
        for key, position in request.positions:
            effects += self._name(key, position, request.follower, now_ms)
        return effects

    def _name(
        self, key: PartitionKey, position: FetchPosition, follower: BrokerKey, now_ms: int
    ) -> Effects:
        self._waiting[key] = position
        leader = self._find(key)
        if isinstance(leader, ErrorCode):
            self._ready[key] = None
            return []
        outcome, effects = leader.on_fetch(follower, position, now_ms, session=self._number)
        if not isinstance(outcome, Records) or outcome.offset < leader.log.end_offset:
            self._ready[key] = None
        elif self._told.get(key) != self._news(leader):
            self.on_offsets_moved(key, now_ms)
        return [(key, effect) for effect in effects]

    def _forget(self, key: PartitionKey) -> None:
        self._waiting.pop(key, None)
        self._told.pop(key, None)
        for names in (self._ready, self._quiet, self._throttled):
            names.pop(key, None)

    def _take_due(self, now_ms: int) -> None:
        """A response takes along what has waited for company, and what the throttle lets go."""
        for key in self._quiet:
            self._ready.setdefault(key, None)
        self._quiet.clear()
        self._quiet_ms = None
        if self._throttled_ms is not None and now_ms >= self._throttled_ms:
            for key in self._throttled:
                self._ready.setdefault(key, None)
            self._throttled.clear()
            self._throttled_ms = None

    def _result(self, key: PartitionKey, now_ms: int) -> FetchResult | None:
        """What there is to tell of a partition that waits; None for nothing, or nothing yet."""
        leader = self._find(key)
        if isinstance(leader, ErrorCode):
            return self._answer(key, Refused(leader))
        outcome = leader.outcome(
            self._requests[0].follower, self._waiting[key], session=self._number
        )
        if not isinstance(outcome, Records):
            # The follower takes over no offset before the logs agree: it is told of them again.
            self._told.pop(key, None)
            return self._answer(key, outcome)
        has_records = outcome.offset < leader.log.end_offset
        if has_records and self._must_wait(key, leader, now_ms):
            return None
        news = self._news(leader)
        if not has_records and self._told.get(key) == news:
            return None
        self._told[key] = news
        _, high_watermark, start_offset = news
        if has_records:
            return self._answer(key, outcome, high_watermark, start_offset)
        return FetchResult(outcome, high_watermark, start_offset)

    def _answer(self, key: PartitionKey, outcome: FetchOutcome, *offsets: int) -> FetchResult:
        """The follower is to name the partition again before it is told more."""
        self._answered[key] = self._waiting.pop(key)
        return FetchResult(outcome, *offsets)

    def _must_wait(self, key: PartitionKey, leader: PartitionLeader, now_ms: int) -> bool:
        """Whether the throttle holds back the records of a follower that is not in sync."""
        if self._throttle is None or self._is_in_sync(leader):
            return False
        ready_ms = self._throttle.ready_ms(now_ms=now_ms)
        if ready_ms <= now_ms:
            return False
        self._throttled[key] = None
        self._throttled_ms = ready_ms
        return True

    def _is_in_sync(self, leader: PartitionLeader | ErrorCode) -> bool:
        if isinstance(leader, ErrorCode) or not self._requests:
            return False
        return leader.is_in_sync(self._requests[0].follower.broker_id)

    def _news(self, leader: PartitionLeader) -> tuple[int, int, int]:
        return leader.state.leader_epoch, leader.high_watermark, leader.log.start_offset
