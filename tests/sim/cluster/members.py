"""The life of a member of a consumer group: it reads, commits, and asks what is committed.

Owns what is promised of committed offsets: what a member was told is committed is not older later.
Every member goes on where the group has committed, so the offsets that the group commits rise. But
a commit that got no response may come to its coordinator after the next one, as in Kafka: the
request waits in a connection that the member has given up.
"""

from __future__ import annotations

import asyncio

from millrace import Consumer, TopicPartition
from millrace.errors import ClientFailed, ConnectionLost, MillraceError, RequestTimedOut
from millrace_simulation.trace import Trace
from tests.sim.clients import Clients, Life
from tests.sim.cluster.options import ClusterOptions
from tests.sim.consuming import note_records
from tests.sim.ledger import Where, partition_name
from tests.sim.topics import Topics

GROUP = "group"


class CommittedOffsets:
    """The offsets that one group was told are committed.

    With a topic its offsets go, and a member may commit what it has read of an earlier topic of the
    same name: nothing is promised of a name that was deleted.
    """

    def __init__(self, topics: Topics, trace: Trace) -> None:
        self._topics = topics
        self._trace = trace
        self._acked: dict[Where, int] = {}
        self._unanswered: dict[Where, set[int]] = {}
        """The offsets of commits that may still take effect."""

    def unanswered(self, where: Where, offset: int) -> None:
        """A member got no response to its commit."""
        self._trace.sometimes("a commit was not answered")
        self._unanswered.setdefault(where, set()).add(offset)

    def committed(self, name: str, where: Where, offset: int) -> None:
        """A member was told that its commit is durable."""
        self._trace.note(f"{name} has committed {offset} of {partition_name(where)}")
        self._trace.sometimes("a commit was acked")
        self._acked[where] = max(offset, self._acked.get(where, 0))

    def least(self) -> dict[Where, int]:
        """What a question that begins now must be answered with at least."""
        return dict(self._acked)

    def check(self, name: str, least: dict[Where, int], where: Where, offset: int) -> None:
        """Judges an answer to a question that began when `least` was taken; 0 stands for none."""
        known = least.get(where, 0)
        is_late = offset in self._unanswered.get(where, ())
        if offset < known and not is_late and where[0] not in self._topics.deleted:
            self._trace.violation(
                f"{name}: {known} of {partition_name(where)} was committed, and now it is {offset}"
            )


class Member:
    """One life of a member."""

    def __init__(self, clients: Clients, life: Life, committed: CommittedOffsets) -> None:
        self._clients = clients
        self._life = life
        self._trace = clients.world.trace
        self._ledger = clients.ledger
        self._committed = committed

    async def run(self, options: ClusterOptions) -> None:
        """Reads the topics there are now until the load is over, or it is time for another life."""
        life = self._life
        (servers,) = self._clients.topics.servers
        topics = self._clients.topics.at(servers)
        try:
            async with Consumer(
                servers.address,
                *(topic.name for topic in topics),
                group=GROUP,
                start="earliest",
                rng=life.rng.fork("client"),
                on_assigned=self._on_assigned,
                **options.member(),
            ) as consumer:
                await self._read(consumer)
        except MillraceError as error:
            self._trace.told(life.name, error)
            if isinstance(error, ClientFailed):
                self._trace.violation(f"a member died: {error!r}")
            await asyncio.sleep(0.2)

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            self._ledger.sought(self._life.number, (where.topic, where.partition), None)
        if partitions:
            self._trace.sometimes("a member was assigned partitions")

    async def _read(self, consumer: Consumer[bytes, bytes]) -> None:
        rng = self._life.rng
        while not self._clients.is_over and rng.random() > 0.01:
            records = await consumer.getmany(rng.randint(1, 200), timeout_ms=500)
            note_records(self._ledger, self._life.number, records)
            draw = rng.random()
            if draw < 0.3:
                await self._commit(consumer)
            elif draw < 0.4:
                await self.ask(consumer)

    async def _commit(self, consumer: Consumer[bytes, bytes]) -> None:
        for where, outcome in (await consumer.commit()).items():
            here = where.topic, where.partition
            if outcome.error is not None:
                self._trace.told(self._life.name, outcome.error)
                if isinstance(outcome.error, ConnectionLost | RequestTimedOut):
                    self._committed.unanswered(here, outcome.offset)
            else:
                self._committed.committed(self._life.name, here, outcome.offset)

    async def ask(self, consumer: Consumer[bytes, bytes], *wheres: Where) -> None:
        """Asks for the committed offsets of partitions, by default of those that are read."""
        least = self._committed.least()
        for where, committed in (await consumer.committed(*wheres)).items():
            offset = 0 if committed is None else committed.offset
            here = where.topic, where.partition
            self._committed.check(self._life.name, least, here, offset)
