"""A quorum in one thread, on virtual time, from one seed: disks, links, clocks and their faults."""

from __future__ import annotations

import heapq
import random
import uuid
from collections import Counter
from collections.abc import Callable

from millrace_server.raft.messages import FetchRequest, Message, SnapshotId
from millrace_server.raft.roles import Leader
from millrace_server.raft.voters import ReplicaKey, Voter, VoterSet
from tests.raft.invariants import Invariants
from tests.raft.replica_host import ReplicaHost


class World:
    """`hosts` by broker id: `voters` of them vote at first, the others observe."""

    def __init__(self, seed: int, *, replicas: int, voters: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.invariants = Invariants()
        self.situations: Counter[str] = Counter()
        self.drop_permille = self.rng.choice((0, 0, 10, 100))
        self.slow_permille = self.rng.choice((0, 10, 50))
        self.blocked: set[tuple[int, int]] = set()
        self._lost: list[ReplicaHost] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        keys = [self._key(number) for number in range(1, replicas + 1)]
        first = VoterSet.of(Voter(key, "host", key.broker_id) for key in keys[:voters])
        self._first_voters = first
        self._skew = {number: self.rng.randrange(100_000) for number in range(1, replicas + 1)}
        self.hosts = {key.broker_id: ReplicaHost(self, key, first) for key in keys}

    def _key(self, broker_id: int) -> ReplicaKey:
        return ReplicaKey(broker_id, uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def local_ms(self, key: ReplicaKey) -> int:
        """The clock of one replica: it has a start of its own and drifts by a percent at most."""
        skew = self._skew[key.broker_id]
        return self.now_ms + skew + self.now_ms * (skew % 20 - 10) // 1000

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, call))

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs for a time, or until something holds, which it returns."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._queue)
            call()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    def disk_ms(self) -> int:
        """How long the disk takes; sometimes long."""
        is_slow = self.rng.randrange(1000) < self.slow_permille
        return self.rng.randrange(200, 3_000) if is_slow else self.rng.randrange(8)

    def send(self, message: Message) -> None:
        """Delivers a message late, twice or not at all; messages overtake each other."""
        link = (message.source.broker_id, message.destination)
        host = self.hosts.get(message.destination)
        is_gone = host is not None and host.node is None
        if isinstance(message, FetchRequest) and (is_gone or self.rng.randrange(200) == 0):
            # Now and then a replica suspects one that is alive.
            self.later(1, lambda: self._suspect(*link))
        for _ in range(2 if self.rng.randrange(50) == 0 else 1):
            if link in self.blocked or self.rng.randrange(1000) < self.drop_permille:
                continue
            delay_ms = self.rng.choice((0, 1, 2, 5, 40, 1_500 if self.drop_permille else 5))
            self.later(delay_ms, lambda: self._deliver(message, link))

    def _suspect(self, broker_id: int, suspected_id: int) -> None:
        self.situations["a process was found gone"] += 1
        self.hosts[broker_id].give(lambda node, now_ms: node.on_process_gone(suspected_id, now_ms))

    def _deliver(self, message: Message, link: tuple[int, int]) -> None:
        host = self.hosts.get(message.destination)
        if host is not None and link not in self.blocked:
            host.give(lambda node, now_ms: node.step(message, now_ms))

    def fetch_snapshot(self, host: ReplicaHost, leader_id: int, snapshot_id: SnapshotId) -> None:
        """Copies a snapshot from the leader, if it has it still."""
        leader = self.hosts[leader_id]

        def done() -> None:
            found = leader.log.snapshot
            link = (leader_id, host.key.broker_id)
            if found is None or found.snapshot_id != snapshot_id or link in self.blocked:
                host.give(lambda node, now_ms: node.on_snapshot_failed(snapshot_id, now_ms))
            else:
                host.on_snapshot(found)

        self.later(self.rng.randrange(5, 200), done)

    def wipe(self, host: ReplicaHost) -> ReplicaHost:
        """Replaces a crashed replica by one of the same broker id with an empty directory."""
        fresh = ReplicaHost(self, self._key(host.key.broker_id), self._first_voters)
        self.hosts[host.key.broker_id] = fresh
        self._lost.append(host)
        self.situations["a directory was lost"] += 1
        return fresh

    def leader(self) -> ReplicaHost | None:
        """The leader of the highest epoch, None if there is none."""
        leading = [host for host in self.hosts.values() if host.leads]
        return max(leading, key=lambda host: host.state.epoch, default=None)

    def on_stepped(self, host: ReplicaHost) -> None:
        """Counts what has been met, and looks for leaders whom too few fetch from."""
        assert host.node is not None
        replica = host.node.replica
        self.situations[f"role {type(replica.role).__name__}"] += 1
        role, now_ms = replica.role, self.local_ms(host.key)
        is_alone = False
        if isinstance(role, Leader):
            since_ms, voters = now_ms - replica.config.fetch_timeout_ms, replica.voters
            silent = role.leadership.silent(voters, since_ms=since_ms)
            followed = len(voters) - len(silent)
            is_alone = role.leadership.began_ms < since_ms and followed < voters.majority
        self.invariants.on_leading(host.key, now_ms, is_alone=is_alone)

    def check_commit(self, leader: ReplicaHost, offset: int) -> None:
        """The durable logs of a majority of the leader's voters hold what it commits.

        A lost directory counts with what it held: its voter can never vote again.
        """
        assert leader.node is not None
        voters = leader.node.replica.voters
        wanted = leader.log.all_entries()[:offset]
        holding = sum(
            host.key in voters
            and host.log.durable_offset >= offset
            and host.log.all_entries()[:offset] == wanted
            for host in (*self.hosts.values(), *self._lost)
        )
        self.invariants.on_commit(offset, holding, voters.majority)
