"""What a follower's broker asks one leader's broker for, over one connection (KIP-227).

Owns which partitions the next fetch names, which responses still count, and when a partition is
tried again. Refuses to know the rules of one partition: `follower` does.

    add(key, follower) remove(key)       a partition gets this leader, or loses it
    on_changed(key)                      its follower has a new position: records are durable, ...
    next_request(now_ms)                 the request to send now; None for none
    on_response(results, now_ms)         the response to the oldest request
    on_failed(key, now_ms)               the disk or the log refused what an effect asked for
    on_disconnected()                    the connection has ended; the next one begins anew

A partition is named when its position has changed. So an idle one is named once, and costs nothing
after that. A partition with records is named again when they are durable. That does not wait for
the fetch that is out: a second one may go, for which the leader answers the first at once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from millrace_server.loop.deadlines import Deadlines
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import FollowerEffect
from millrace_server.replication.fetch_session import REQUESTS_MAX
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.messages import (
    BrokerKey,
    FetchPosition,
    FetchRequest,
    FetchResult,
    PartitionKey,
    Records,
    Refused,
)

Effects = list[tuple[PartitionKey, FollowerEffect]]


class _Asked(NamedTuple):
    """A position that the leader knows, and the number of the request that named it."""

    position: FetchPosition
    request: int


class FetchSchedule:
    """The partitions that one broker leads and this broker follows.

    Invariant: `_asked` holds what the leader waits with, and what is on its way to it.
    """

    def __init__(self, broker: BrokerKey, config: ReplicationConfig) -> None:
        self.broker = broker
        self.followers: dict[PartitionKey, PartitionFollower] = {}
        self._config = config
        self._unnamed: OrderedDict[PartitionKey, None] = OrderedDict()
        """Those whose position the leader does not know, the oldest first."""
        self._forgotten: dict[PartitionKey, None] = {}
        self._asked: dict[PartitionKey, _Asked] = {}
        self._backoff: Deadlines[PartitionKey] = Deadlines()
        self._busy: set[PartitionKey] = set()
        """Those whose last response is being made durable."""
        self._busy_until_ms = 0
        self._sent = 0
        self._in_flight: deque[int] = deque()
        """The numbers of the requests without a response."""
        self._is_first = True
        self._is_beginning = False
        """Whether the first request of the connection has no response yet: none may overtake it."""

    def add(self, key: PartitionKey, follower: PartitionFollower) -> None:
        """Fetches a partition, in the place of an earlier follower of it."""
        self.followers[key] = follower
        self._backoff.cancel(key)
        self._busy.discard(key)
        self.on_changed(key)

    def remove(self, key: PartitionKey) -> None:
        """Fetches a partition no longer."""
        del self.followers[key]
        self._unnamed.pop(key, None)
        self._backoff.cancel(key)
        self._busy.discard(key)
        if self._asked.pop(key, None) is not None:
            self._forgotten[key] = None

    def on_changed(self, key: PartitionKey) -> None:
        """A follower may have another position than the one that the leader knows."""
        follower = self.followers.get(key)
        position = None if follower is None else follower.position()
        if position is None:
            return
        self._busy.discard(key)
        asked = self._asked.get(key)
        if key not in self._backoff and (asked is None or asked.position != position):
            self._unnamed[key] = None

    def deadline_ms(self) -> int | None:
        """When `next_request` may have a request without an event; None for never."""
        due_ms = self._backoff.next_due_ms()
        if self._busy and self._asked and not self._in_flight:
            due_ms = self._busy_until_ms if due_ms is None else min(due_ms, self._busy_until_ms)
        return due_ms

    def next_request(self, now_ms: int) -> FetchRequest | None:
        """The request to send now; None for none. The shell sends it, or calls `on_disconnected`.

        One that names nothing lets the leader tell of the partitions that it knows. It waits a
        little for those that become durable, because they would need another one.
        """
        for key in self._backoff.pop_due(now_ms):
            self.on_changed(key)
        if len(self._in_flight) == (1 if self._is_beginning else REQUESTS_MAX):
            return None
        self._sent += 1
        positions = self._take_unnamed()
        if not positions and not self._forgotten:
            is_waiting = bool(self._busy) and now_ms < self._busy_until_ms
            if self._in_flight or is_waiting or not self._asked:
                return None
        forgotten = tuple(self._forgotten)
        request = FetchRequest(
            self.broker,
            self._is_first,
            positions,
            forgotten,
            self._config.fetch_wait_ms,
            self._config.fetch_bytes_max,
        )
        self._forgotten.clear()
        self._is_beginning, self._is_first = self._is_first, False
        self._in_flight.append(self._sent)
        return request

    def on_response(
        self, results: Iterable[tuple[PartitionKey, FetchResult]], now_ms: int
    ) -> Effects:
        """The response to the oldest request.

        After the effects of a partition the shell calls `on_changed` for it, and again whenever its
        follower has had an event.
        """
        number = self._in_flight.popleft()
        self._is_beginning = False
        effects: Effects = []
        for key, result in results:
            asked = self._asked.get(key)
            if asked is None or asked.request > number:
                # The partition was removed, or named anew, after this response was on its way.
                continue
            follower = self.followers[key]
            if not isinstance(result.outcome, Records) or result.outcome.data is not None:
                del self._asked[key]
            if isinstance(result.outcome, Refused) and asked.position == follower.position():
                self._backoff.set(key, now_ms + self._config.backoff_ms)
                continue
            out = follower.on_result(asked.position, result)
            effects += [(key, effect) for effect in out]
            if key not in self._asked and out:
                self._busy.add(key)
                self._busy_until_ms = now_ms + self._config.request_wait_ms
            else:
                self.on_changed(key)
        return effects

    def on_failed(self, key: PartitionKey, now_ms: int) -> None:
        """The follower could not do what was asked for: the partition is tried again later."""
        follower = self.followers.get(key)
        if follower is not None:
            follower.on_failed()
            self._busy.discard(key)
            self._unnamed.pop(key, None)
            self._backoff.set(key, now_ms + self._config.backoff_ms)

    def on_disconnected(self) -> None:
        """The connection has ended: the leader remembers nothing of it."""
        self._in_flight.clear()
        self._asked.clear()
        self._forgotten.clear()
        self._is_first, self._is_beginning = True, False
        for key in self.followers:
            self.on_changed(key)

    def _take_unnamed(self) -> tuple[tuple[PartitionKey, FetchPosition], ...]:
        positions: list[tuple[PartitionKey, FetchPosition]] = []
        while self._unnamed and len(positions) < self._config.named_partitions_max:
            key, _ = self._unnamed.popitem(last=False)
            position = self.followers[key].position()
            if position is not None:
                positions.append((key, position))
                self._asked[key] = _Asked(position, self._sent)
        return tuple(positions)
