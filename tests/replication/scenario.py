"""One life of replicated partitions from one seed: faults, then healing, then all must agree."""

from __future__ import annotations

from collections import Counter
from functools import partial

from millrace_server.replication.messages import PartitionKey
from tests.replication.broker_host import BrokerHost
from tests.replication.invariants import Violation
from tests.replication.partition_host import PartitionHost
from tests.replication.replica_log import ReplicaLog
from tests.replication.world import CONTROLLER_ID, World

CHAOS_MS = 30_000
LIVENESS_MS = 40_000
LAST_VALUE = "the last value"


def run_seed(seed: int) -> Counter[str]:
    """Runs a seed; returns what it has met. Raises `Violation`."""
    life = _Life(seed)
    try:
        life.run()
    except Violation as error:
        raise Violation(f"seed {seed}: {error}") from error
    return life.world.situations


class _Life:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.rng = self.world.rng
        self.produced = 0

    def run(self) -> None:
        world = self.world
        for host in world.hosts.values():
            host.start()
        end_ms = world.now_ms + CHAOS_MS
        while world.now_ms < end_ms:
            world.run(self.rng.choice((5, 20, 50, 200, 700)))
            for _ in range(self.rng.choice((0, 1, 1, 3, 8))):
                self._produce()
            self._trouble()
            if world.allows_loss:
                world.elect_uncleanly(is_forced=False)
        self._heal()
        self._check_liveness()

    def _produce(self) -> None:
        host = self.rng.choice(list(self.world.hosts.values()))
        key = self.rng.choice(self.world.keys)
        if host.is_running:
            value = f"value {self.produced}"
            acks_all = self.rng.randrange(4) > 0
            host.run(partial(self._try, host.partitions[key], value, acks_all=acks_all))

    def _trouble(self) -> None:
        world, rng = self.world, self.rng
        host = rng.choice(list(world.hosts.values()))
        other = rng.choice(list(world.hosts.values()))
        number = host.broker_id
        match rng.randrange(30):
            case 0:
                self._kill(host)
            case 1:
                self._cut_power([host])
            case 2:
                self._cut_power([h for h in world.hosts.values() if rng.randrange(3)])
            case 3 | 4 | 5 | 6:
                if not host.is_alive:
                    host.start()
            case 7:
                host.is_paused = host.is_alive
            case 8 | 9:
                host.resume()
            case 10 | 11:
                world.blocked.add((number, other.broker_id))
            case 12:
                world.blocked |= {(number, CONTROLLER_ID), (CONTROLLER_ID, number)}
            case 13:
                for peer in world.hosts:
                    world.blocked |= {(number, peer), (peer, number)}
            case 14 | 15 | 16:
                world.blocked.clear()
            case 17 | 18:
                self._move_leader(rng.choice(world.keys))
            case 19:
                self._stop(host)
            case 20:
                self._wipe(host)
            case 21 | 22:
                if host.is_running:
                    count = rng.randrange(6)
                    host.run(lambda: host.partitions[rng.choice(world.keys)].run_retention(count))

    def _move_leader(self, key: PartitionKey) -> None:
        """One election after another; some brokers hear of them late."""
        for _ in range(self.rng.randrange(1, 4)):
            self.world.controller.move_leader(key)
            self.world.run(self.rng.choice((0, 2, 10, 50)))
            self._produce()

    def _kill(self, host: BrokerHost) -> None:
        is_loss = not (self.world.is_synced or self.world.allows_loss)
        if host.is_alive and (not is_loss or self._is_copy_left([host])):
            host.kill()
            self.world.situations["a broker was killed"] += 1

    def _cut_power(self, hosts: list[BrokerHost]) -> None:
        world = self.world
        if not (world.is_synced or world.allows_loss or self._is_copy_left(hosts)):
            return
        for host in hosts:
            if host.is_alive:
                host.cut_power()
                world.situations["the power of a broker was cut"] += 1
        if len(hosts) == len(world.hosts):
            world.situations["the power of all brokers was cut"] += 1

    def _stop(self, host: BrokerHost) -> None:
        """A controlled shutdown: the leaders move first."""
        world = self.world
        registration = world.controller.image.brokers.get(host.broker_id)
        if not host.is_running or registration is None or registration.is_fenced:
            return
        if registration.epoch == host.broker_epoch and world.is_connected(host.broker_id):
            world.controller.begin_shutdown(host.broker_id)
            host.later(self.rng.randrange(1_500), host.stop)
            world.situations["a broker was stopped in order"] += 1

    def _wipe(self, host: BrokerHost) -> None:
        if self.world.is_connected(host.broker_id) and self._is_copy_left([host]):
            host.wipe()
            host.start()
            self.world.situations["a directory was lost"] += 1

    def _is_copy_left(self, lost: list[BrokerHost]) -> bool:
        """Whether each partition keeps a replica that may lead and has lost nothing."""
        gone = {host.broker_id for host in lost}
        for partition in self.world.controller.image.partitions.values():
            eligible = {*partition.state.isr, *partition.elr} - gone
            if all(self.world.hosts[broker_id].is_lossy for broker_id in eligible):
                return False
        return True

    def _heal(self) -> None:
        world = self.world
        world.blocked.clear()
        world.drop_permille = world.slow_permille = 0
        for host in world.hosts.values():
            if not host.is_alive:
                host.start()
            host.resume()
        # A controlled shutdown that is still under way ends.
        world.run(4_000)
        for host in world.hosts.values():
            if not host.is_alive:
                host.start()

    def _check_liveness(self) -> None:
        world = self.world
        if not world.run(LIVENESS_MS, until=self._are_all_in_sync):
            raise Violation(f"replicas do not come in sync: {self._states()}")
        self._produce_last()
        if not world.run(LIVENESS_MS, until=self._is_last_committed):
            raise Violation(f"the last value is not committed everywhere: {self._states()}")
        for key in world.keys:
            for host in self._replicas(key):
                world.invariants.check_acked(key, host.logs[key])

    def _produce_last(self) -> None:
        """One more value for each partition, again and again until its leader takes it."""
        for key in self.world.keys:
            leader = self._leader(key)
            if not self._has_last(leader.logs[key]):
                leader.run(partial(self._try, leader.partitions[key], LAST_VALUE))
        self.world.later(500, self._produce_last)

    def _try(self, partition: PartitionHost, value: str, *, acks_all: bool = True) -> None:
        self.produced += partition.produce(value, acks_all=acks_all)

    def _has_last(self, log: ReplicaLog) -> bool:
        return bool(log.entries) and log.entries[-1].value == LAST_VALUE

    def _leader(self, key: PartitionKey) -> BrokerHost:
        leader = self.world.controller.image.partitions[key].leader
        assert leader is not None
        return self.world.hosts[leader]

    def _replicas(self, key: PartitionKey) -> list[BrokerHost]:
        state = self.world.controller.image.partitions[key].state
        return [self.world.hosts[broker_id] for broker_id in state.replicas]

    def _are_all_in_sync(self) -> bool:
        self.world.elect_uncleanly(is_forced=True)
        for partition in self.world.controller.image.partitions.values():
            if partition.leader is None or len(partition.state.isr) < len(partition.state.replicas):
                return False
        return all(self._leader(key).partitions[key].leader for key in self.world.keys)

    def _is_last_committed(self) -> bool:
        for key in self.world.keys:
            for host in self._replicas(key):
                partition, log = host.partitions[key], host.logs[key]
                if not self._has_last(log) or partition.high_watermark < log.end_offset:
                    return False
        return True

    def _states(self) -> list[str]:
        return [
            f"{key.partition}: {partition.state}, leader {partition.leader}, elr {partition.elr}"
            for key, partition in self.world.controller.image.partitions.items()
        ]
