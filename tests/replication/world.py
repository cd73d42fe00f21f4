"""Brokers with replicated partitions in one thread, on virtual time, from one seed."""

from __future__ import annotations

import heapq
import random
import uuid
from collections import Counter
from collections.abc import Callable

from millrace_server.replication.effects import ProposeIsr
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.messages import PartitionKey
from tests.replication.broker_host import BrokerHost
from tests.replication.connection import Connection
from tests.replication.controller import Controller, Partition, Refused
from tests.replication.invariants import Invariants, Violation
from tests.replication.replica_log import Entry, ReplicaLog

CONTROLLER_ID = 0
SESSION_MS = 2_000
HEARTBEAT_MS = 400
PROPOSAL_TIMEOUT_MS = 1_000


class World:
    """`hosts` by broker id. Links and disks fail as the seed says."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.situations: Counter[str] = Counter()
        self.drop_permille = self.rng.choice((0, 0, 5, 30))
        self.slow_permille = self.rng.choice((0, 10, 50))
        self.blocked: set[tuple[int, int]] = set()
        self.invariants = Invariants()
        self.lost_logs: list[tuple[PartitionKey, ReplicaLog]] = []
        self.is_synced = seed % 3 != 2
        self.allows_loss = seed % 8 == 7
        brokers = 5 if seed % 2 else 3
        self.keys = [PartitionKey(uuid.UUID(int=1), number) for number in range(2)]
        self.controller = Controller({key: self._partition(key, brokers) for key in self.keys})
        for key in self.keys:
            self.invariants.committed[key] = []
            self.invariants.acked[key] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._connections = 0
        self._seen_ms: dict[int, int] = {}
        self._published = 0
        self.hosts = {number: BrokerHost(self, number) for number in range(1, brokers + 1)}
        self._heartbeat()

    def _partition(self, key: PartitionKey, brokers: int) -> Partition:
        count = 3 if key.partition == 0 else brokers
        first = self.rng.randrange(brokers)
        replicas = tuple((first + i) % brokers + 1 for i in range(count))
        state = PartitionState(0, 0, replicas, replicas, self.rng.choice((1, 2, 2)))
        return Partition(state, None, is_synced=self.is_synced, allows_loss=self.allows_loss)

    # Time

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, call))

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs for a time, or until something holds, which it returns."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._queue)
            call()
            self._publish()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    def disk_ms(self) -> int:
        """How long a sync takes; sometimes long."""
        is_slow = self.rng.randrange(1000) < self.slow_permille
        return self.rng.randrange(200, 2_000) if is_slow else self.rng.randrange(8)

    def delay_ms(self, source: int, destination: int) -> int | None:
        """How long a message is on its way; None if it is lost."""
        if (source, destination) in self.blocked:
            return None
        if self.rng.randrange(1000) < self.drop_permille:
            return None
        return self.rng.choice((0, 0, 1, 2, 5, 40, 1_500 if self.drop_permille else 5))

    def connect(self, follower_id: int, leader_id: int) -> Connection:
        """Numbers rise by two: there is one between them for what comes late."""
        self._connections += 2
        return Connection(self, follower_id, leader_id, self._connections)

    # The controller

    def _publish(self) -> None:
        """Sends a new image to every broker, and checks what the controller has decided."""
        image = self.controller.image
        if image.version == self._published:
            return
        self._published = image.version
        self.invariants.on_image(image)
        self.check_replicas()
        for host in self.hosts.values():
            self._send_image(host)

    def _send_image(self, host: BrokerHost) -> None:
        image = self.controller.image
        delay_ms = self.delay_ms(CONTROLLER_ID, host.broker_id)
        if delay_ms is not None:
            self.later(delay_ms, lambda: host.run(lambda: host.on_image(image)))

    def check_replicas(self) -> None:
        """Of every partition: each replica that may lead has what is committed."""
        for key, partition in self.controller.image.partitions.items():
            logs = {h.broker_id: h.logs[key] for h in self.hosts.values() if not h.is_lossy}
            self.invariants.on_replicas(key, partition, logs)

    def _heartbeat(self) -> None:
        """Fences brokers that are silent, and unfences those that are back."""
        controller = self.controller
        for host in self.hosts.values():
            registration = controller.image.brokers.get(host.broker_id)
            if registration is None or registration.epoch != host.broker_epoch:
                continue
            if host.is_running and self.is_connected(host.broker_id):
                self._seen_ms[host.broker_id] = self.now_ms
                if registration.is_fenced:
                    controller.unfence(host.broker_id)
                self._send_image(host)
        for broker_id, registration in controller.image.brokers.items():
            silent_ms = self.now_ms - self._seen_ms.get(broker_id, 0)
            if not registration.is_fenced and silent_ms > SESSION_MS:
                controller.fence(broker_id)
                self.situations["a broker was fenced"] += 1
        self.later(HEARTBEAT_MS, self._heartbeat)

    def is_connected(self, broker_id: int) -> bool:
        """Whether a broker reaches the controller, and the other way round."""
        links = {(broker_id, CONTROLLER_ID), (CONTROLLER_ID, broker_id)}
        return not links & self.blocked

    def register(self, host: BrokerHost, *, is_clean: bool) -> int | None:
        """A process of a broker registers; None if it does not reach the controller."""
        if not self.is_connected(host.broker_id):
            return None
        host.is_lossy = False
        self._seen_ms[host.broker_id] = self.now_ms
        return self.controller.register(host.broker_id, host.directory, is_clean=is_clean)

    def elect_uncleanly(self, *, is_forced: bool) -> None:
        """Elections where no replica may lead without the loss of records."""
        for key in self.keys:
            self.controller.elect_uncleanly(key, is_forced=is_forced)
            epoch = self.controller.unclean_epochs.get(key, -1)
            if epoch > self.invariants.unclean_epochs.get(key, -1):
                self.invariants.on_unclean_election(key, epoch)
                self.situations["a leader was elected uncleanly"] += 1

    def propose(
        self,
        host: BrokerHost,
        key: PartitionKey,
        proposal: ProposeIsr,
        respond: Callable[[tuple[tuple[int, ...], int] | Refused], None],
    ) -> None:
        """AlterPartition. Request and response may be lost, late or, the request, doubled.

        The response is given once. What takes effect after that takes effect all the same.
        """
        sender = (host.broker_id, host.broker_epoch)
        is_over = False

        def end(result: tuple[tuple[int, ...], int] | Refused) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                respond(result)

        def arrive() -> None:
            result: tuple[tuple[int, ...], int] | Refused
            try:
                result = self.controller.propose(key, sender, proposal)
                self.situations["an ISR was changed"] += 1
            except Refused as refused:
                self.situations["a proposal was refused"] += 1
                result = refused
            delay_ms = self.delay_ms(CONTROLLER_ID, host.broker_id)
            if delay_ms is not None:
                self.later(delay_ms, lambda: host.run(lambda: end(result)))

        delay_ms = self.delay_ms(host.broker_id, CONTROLLER_ID)
        if delay_ms is not None:
            late_ms = self.rng.choice((0, 0, 0, 0, 0, 0, 1_800))
            self.later(delay_ms + late_ms, arrive)
        undecided = Refused(is_decided=False)
        self.later(PROPOSAL_TIMEOUT_MS, lambda: host.run(lambda: end(undecided)))

    def check_copies(self, key: PartitionKey, offset: int, entry: Entry, needed: int) -> None:
        """What is acked is durable on as many disks as the topic demands, lost ones included."""
        logs = [host.logs[key] for host in self.hosts.values()]
        logs += [log for lost_key, log in self.lost_logs if lost_key == key]
        copies = sum(
            log.start_offset > offset
            or (log.read(offset, 1) == (entry,) and log.acked_offset > offset)
            for log in logs
        )
        if self.is_synced and copies < needed:
            raise Violation(f"{entry} is acked with {copies} durable copies, {needed} are needed")
