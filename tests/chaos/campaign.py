"""One run of chaos: clients that record what they see, and faults one after the other.

Each fault is followed by a time without one, until records of every partition are acked again: so
a cluster that does not come back is found as well as one that loses a record. What the clients saw
is a history, and `tests.history` says whether a correct log can have shown it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millrace import Admin, Consumer, Producer
from millrace.errors import MillraceError
from tests.chaos.broker_hosts import POLL_S, BrokerHosts
from tests.chaos.faults import FAULTS, Fault, Scene
from tests.chaos.host_network import HostNetwork
from tests.history.anomalies import Report
from tests.history.checker import check
from tests.history.operations import Crashed, History
from tests.history.recorded_clients import CONSUMER, RecordedReads, RecordedSends, read_all

TOPIC = "chaos"
PARTITIONS = 3
REPLICAS = 3
FAULT_S = (1.0, 6.0)
RECOVERY_S = 120
"""A cluster takes acks again within this time after a fault, also on a machine under load."""
PAUSE_S = 0.1
"""Between rounds of the producer: a run of ten minutes has some 600,000 records."""
LINES_OF_A_LOG = 20


@dataclass(frozen=True)
class FaultOutcome:
    """A fault, how long it lasted, and how long after its end acks of all partitions came."""

    name: str
    duration_s: float
    recovery_s: float


@dataclass
class ChaosOutcome:
    """What a run showed."""

    report: Report
    faults: list[FaultOutcome] = field(default_factory=list)
    sent: int = 0
    polled: int = 0


class Campaign:
    """Faults chosen by `seed`, for `seconds` and until the last one has ended."""

    def __init__(
        self, data: Path, *, brokers: int, seconds: float, seed: int, tell: Callable[[str], None]
    ) -> None:
        """`tell` is given a line for each fault."""
        self._data = data
        self._count = brokers
        self._seconds = seconds
        self._rng = random.Random(seed)
        self._tell = tell
        self._history = History()
        self._unused: list[Fault] = []

    async def run(self) -> ChaosOutcome:
        """Raises `TimeoutError` when the cluster takes no acks after a fault."""
        with HostNetwork(self._count) as network:
            brokers = BrokerHosts(network, self._data, brokers=self._count)
            try:
                await brokers.start()
                return await self._run(brokers, network)
            finally:
                await brokers.kill()

    async def _run(self, brokers: BrokerHosts, network: HostNetwork) -> ChaosOutcome:
        await self._create_topic(brokers)
        faults: list[FaultOutcome] = []
        async with (
            Consumer(brokers.servers, TOPIC, start="earliest") as consumer,
            Producer(brokers.servers, linger_ms=1, delivery_timeout_ms=300_000) as producer,
            asyncio.TaskGroup() as group,
        ):
            reads = RecordedReads(consumer, self._history, CONSUMER)
            following = group.create_task(reads.follow())
            sends = RecordedSends(producer, self._history, TOPIC, PARTITIONS, pause_s=PAUSE_S)
            sending = group.create_task(sends.send_until_told())
            end_s = time.monotonic() + self._seconds
            while time.monotonic() < end_s:
                await self._acked_everywhere(sends)
                faults.append(await self._break(brokers, network, sends))
            sends.stop()
            await sending
            following.cancel()
        await read_all(brokers.servers, TOPIC, self._history)
        return ChaosOutcome(check(self._history), faults, sends.sent, reads.count)

    async def _create_topic(self, brokers: BrokerHosts) -> None:
        async with asyncio.timeout(RECOVERY_S):
            while True:
                try:
                    async with Admin(brokers.servers) as admin:
                        await admin.create_topic(
                            TOPIC,
                            partitions=PARTITIONS,
                            replication_factor=min(self._count, REPLICAS),
                            configs={"min.insync.replicas": str(min(self._count, REPLICAS - 1))},
                        )
                        return
                except MillraceError:
                    brokers.check_running()
                    await asyncio.sleep(POLL_S)

    async def _break(
        self, brokers: BrokerHosts, network: HostNetwork, sends: RecordedSends
    ) -> FaultOutcome:
        """One fault, and the time until the cluster is well again."""
        async with asyncio.timeout(RECOVERY_S):
            leader = await brokers.leader(TOPIC, self._rng.randrange(PARTITIONS))
            scene = Scene(brokers, network, leader, await brokers.controller(), self._rng)
        fault = self._next_fault()
        name = fault.__name__.replace("_", " ")
        began_s = time.monotonic()
        async with fault(scene):
            self._history.add(Crashed(name))
            await asyncio.sleep(self._rng.uniform(*FAULT_S))
        ended_s = time.monotonic()
        try:
            await self._acked_everywhere(sends)
        except TimeoutError:
            brokers.check_running()
            raise TimeoutError(
                f"no acks within {RECOVERY_S} s after: {name}; see the logs in {self._data}"
            ) from None
        brokers.check_running()
        outcome = FaultOutcome(name, ended_s - began_s, time.monotonic() - ended_s)
        self._tell(
            f"{name} for {outcome.duration_s:.1f} s (leader {leader}, controller "
            f"{scene.controller}); acks everywhere {outcome.recovery_s:.1f} s after"
        )
        return outcome

    def _next_fault(self) -> Fault:
        """Each of the faults once before one comes again."""
        if not self._unused:
            self._unused = self._rng.sample(FAULTS, len(FAULTS))
        return self._unused.pop()

    async def _acked_everywhere(self, sends: RecordedSends) -> None:
        async with asyncio.timeout(RECOVERY_S):
            await sends.acked_everywhere()
