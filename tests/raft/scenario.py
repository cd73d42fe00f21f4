"""One life of a quorum from one seed: faults, then healing, then it must work again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from millrace_server.raft.effects import Effect
from millrace_server.raft.following import CommittedRecordsLost
from millrace_server.raft.node import VoterChangeRefused
from millrace_server.raft.voters import Voter, VoterSet
from tests.raft.invariants import Violation
from tests.raft.replica_host import ReplicaHost
from tests.raft.world import World

CHAOS_MS = 40_000
LIVENESS_MS = 60_000


def run_seed(seed: int) -> Counter[str]:
    """Runs a seed; returns what it has met. Raises `Violation`."""
    life = _Life(seed)
    try:
        life.run()
    except (Violation, CommittedRecordsLost) as error:
        raise Violation(f"seed {seed}: {error}") from error
    return life.world.situations


class _Life:
    def __init__(self, seed: int) -> None:
        voters = (1, 3, 3, 5)[seed % 4]
        observers = seed % 3
        self.world = World(seed, replicas=voters + observers, voters=voters)
        self.rng = self.world.rng
        self.proposed = 0

    def run(self) -> None:
        world = self.world
        for host in list(world.hosts.values()):
            host.start()
        end_ms = world.now_ms + CHAOS_MS
        while world.now_ms < end_ms:
            world.run(self.rng.choice((5, 30, 200, 1_000)))
            self._propose()
            self._trouble()
        self._heal()
        self._check_liveness("the last value of all")
        if self._lose_leader():
            self._check_liveness("a value without the leader")

    def _propose(self) -> None:
        for host in self.world.hosts.values():
            if host.propose(f"value {self.proposed}") is not None:
                self.proposed += 1

    def _trouble(self) -> None:
        world, rng = self.world, self.rng
        host = rng.choice(list(world.hosts.values()))
        other = rng.choice(list(world.hosts.values()))
        match rng.randrange(20):
            case 0:
                self._crash(host)
            case 1:
                for crashed in list(world.hosts.values()):
                    if rng.randrange(2):
                        self._crash(crashed)
            case 2 | 3:
                if host.node is None:
                    host.start()
            case 4:
                host.is_paused = host.node is not None
            case 5:
                host.resume()
            case 6:
                world.blocked.add((host.key.broker_id, other.key.broker_id))
            case 7:
                for number in world.hosts:
                    world.blocked |= {(host.key.broker_id, number), (number, host.key.broker_id)}
            case 8 | 9:
                world.blocked.clear()
            case 10:
                self._snapshot(host)
            case 11:
                self._change_voters(host)
            case 12:
                host.give(lambda node, now_ms: node.resign(now_ms))
            case 13:
                self._wipe(host)

    def _crash(self, host: ReplicaHost) -> None:
        if host.node is not None:
            host.crash()
            self.world.situations["a replica has crashed"] += 1

    def _snapshot(self, host: ReplicaHost) -> None:
        if host.node is not None and host.high_watermark > host.log.start_offset + 3:
            end_offset = host.high_watermark
            changes = [c for c in host.node.replica.history.changes if c.offset < end_offset]
            voters = changes[-1].voters if changes else host.node.replica.history.first
            host.log.take_snapshot(end_offset, voters, keep=self.rng.randrange(3))
            self.world.situations["a snapshot was made"] += 1

    def _change_voters(self, host: ReplicaHost) -> None:
        leader = self.world.leader()
        if leader is None or leader.node is None or leader.is_paused:
            return
        voters = leader.node.replica.voters
        key = host.key
        lost = [v for v in voters.keys if self.world.hosts[v.broker_id].key != v]
        if lost and key.broker_id != lost[0].broker_id:
            # An operator replaces a lost voter before anything else.
            return
        if key in voters and len(voters) > 1:
            leader.give(lambda node, now_ms: _change(lambda: node.remove_voter(key, now_ms)))
        elif key not in voters:
            stale = voters.key_of(key.broker_id)
            if stale is not None:
                leader.give(lambda node, now_ms: _change(lambda: node.remove_voter(stale, now_ms)))
            else:
                voter = Voter(key, "host", key.broker_id)
                leader.give(lambda node, now_ms: _change(lambda: node.add_voter(voter, now_ms)))
        self.world.situations["a change of voters was asked for"] += 1

    def _wipe(self, host: ReplicaHost) -> None:
        """Loses a directory; a majority of the voters keeps what is committed. So it is in every
        set that a replica has: the latest may not be committed, and an older one come back."""
        leader = self.world.leader()
        if leader is None or leader.node is None or leader is host:
            return
        if not all(map(partial(self._survives, host), self._voter_sets())):
            return
        self._crash(host)
        self.world.wipe(host).start()

    def _voter_sets(self) -> list[VoterSet]:
        return [host.node.replica.voters for host in self.world.hosts.values() if host.node]

    def _survives(self, lost: ReplicaHost, voters: VoterSet) -> bool:
        """Whether a majority of voters has its directory and what is committed without a host."""
        hosts, committed = self.world.hosts, len(self.world.invariants.committed)
        whole = [
            hosts[key.broker_id].log.durable_offset >= committed
            for key in voters.keys
            if hosts[key.broker_id].key == key != lost.key
        ]
        return sum(whole) >= voters.majority and len(voters) > 2

    def _heal(self) -> None:
        world = self.world
        world.blocked.clear()
        world.drop_permille = world.slow_permille = 0
        for host in world.hosts.values():
            if host.node is None:
                host.start()
            host.resume()

    def _lose_leader(self) -> bool:
        """Ends the leader's process for good, where a majority is left without it."""
        leader = self.world.leader()
        if leader is None or leader.node is None:
            return False
        hosts, voters = self.world.hosts, leader.node.replica.voters
        left = [key for key in voters.keys if hosts[key.broker_id].key == key != leader.key]
        if len(left) < voters.majority:
            return False
        self._crash(leader)
        self.world.situations["a leader was lost for good"] += 1
        return True

    def _check_liveness(self, value: str) -> None:
        world = self.world
        is_over = False

        def propose() -> None:
            leader = world.leader()
            if leader is not None:
                leader.propose(value)
            if not is_over:
                world.later(500, propose)

        def works() -> bool:
            return any(entry.value == value for entry in world.invariants.committed[-9:])

        propose()
        if not world.run(LIVENESS_MS, until=works):
            raise Violation(f"{value!r} was not committed after all faults had healed")
        is_over = True
        end_offset = len(world.invariants.committed)

        def behind() -> list[int]:
            hosts = [host for host in world.hosts.values() if host.node is not None]
            return [host.key.broker_id for host in hosts if host.high_watermark < end_offset]

        if not world.run(LIVENESS_MS, until=lambda: not behind()):
            raise Violation(f"replicas {behind()} do not catch up with offset {end_offset}")


def _change(change: Callable[[], list[Effect]]) -> list[Effect]:
    try:
        return change()
    except VoterChangeRefused:
        return []
