"""A connection from a follower's broker to a leader's: in order, until it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millrace_server.replication.messages import FetchRequest, FetchResult, PartitionKey

if TYPE_CHECKING:
    from tests.replication.world import World

Results = list[tuple[PartitionKey, FetchResult]]


class Connection:
    """What is lost breaks it. What was sent before still arrives, perhaps much later."""

    def __init__(self, world: World, follower_id: int, leader_id: int, number: int) -> None:
        self.number = number
        self.follower_id = follower_id
        self.leader_id = leader_id
        self.is_broken = False
        self.is_ended = False
        self.answered = 0
        self.sent = 0
        self._world = world
        self._arrivals = {follower_id: 0, leader_id: 0}

    def send_request(self, request: FetchRequest) -> None:
        leader = self._world.hosts[self.leader_id]
        self._send(self.leader_id, lambda: leader.on_fetch_request(self, request))

    def send_response(self, results: Results) -> None:
        follower = self._world.hosts[self.follower_id]
        self._send(self.follower_id, lambda: follower.on_fetch_response(self, results))

    def _send(self, destination: int, deliver: Callable[[], None]) -> None:
        source = self.follower_id if destination == self.leader_id else self.leader_id
        delay_ms = self._world.delay_ms(source, destination)
        if delay_ms is None or self.is_broken:
            self.is_broken = True
            return
        arrival_ms = max(self._arrivals[destination], self._world.now_ms + delay_ms)
        self._arrivals[destination] = arrival_ms
        self._world.later(
            arrival_ms - self._world.now_ms,
            lambda: self._world.hosts[destination].run(deliver),
        )
