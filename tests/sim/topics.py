"""The topics of a run: made, deleted, and made again under the same name, whatever it takes.

Owns which topics there are and what is promised of each. A topic that was answered as made or
deleted stays so; only where requests may arrive long after their sender gave them up, a deleted
one may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from millrace import Admin
from millrace.errors import MillraceError, TopicAlreadyExists, UnknownTopicOrPartition
from millrace_simulation.world import Rng, World
from tests.history.operations import Left
from tests.sim.ledger import Ledger, Where
from tests.sim.options import Options
from tests.sim.servers import Servers

TOPICS_MAX = 6


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its maker knows it; all of it is in one cluster."""

    name: str
    partitions: int
    configs: dict[str, str]
    servers: Servers = field(repr=False)

    @property
    def wheres(self) -> list[Where]:
        return [(self.name, number) for number in range(self.partitions)]

    @property
    def is_forgetful(self) -> bool:
        """Whether a power cut may take back what was acked."""
        return self.configs["durability"] == "os"

    @property
    def is_whole(self) -> bool:
        """Whether it keeps everything from offset 0 on."""
        return not (self.configs.keys() & {"retention.bytes", "retention.ms"})

    @property
    def is_stamped(self) -> bool:
        """Whether the broker sets the timestamps."""
        return self.configs["message.timestamp.type"] == "LogAppendTime"


class Topics:
    """All topics. `present` are those that clients use, `uncertain` may be there or not."""

    def __init__(self, world: World, options: Options, ledger: Ledger, rng: Rng) -> None:
        self.present: dict[str, Topic] = {}
        self.uncertain: dict[str, None] = {}
        self.deleted: set[str] = set()
        """Names of topics that were deleted at least once, from before the first attempt."""
        self.servers: list[Servers] = []
        """Filled by the run before the first topic is made."""
        self._world = world
        self._options = options
        self._ledger = ledger
        self._rng = rng

    @property
    def wheres(self) -> list[Where]:
        """All partitions of the topics that are present."""
        return [where for topic in self.present.values() for where in topic.wheres]

    def at(self, servers: Servers) -> list[Topic]:
        """The topics in one cluster that are present."""
        return [topic for topic in self.present.values() if topic.servers is servers]

    def forget_unsynced(self, servers: Servers) -> None:
        """The power of the machine of a broker is cut that is a cluster of its own."""
        for topic in self.at(servers):
            if topic.is_forgetful:
                for where in topic.wheres:
                    self._ledger.forgot(where, Left.PREFIX)

    async def create(self, number: int) -> None:
        """Makes a topic, however often it takes. The clusters take turns."""
        name, servers = f"t{number}", self.servers[number % len(self.servers)]
        rng = self._rng.fork(name)
        configs = {
            "durability": rng.choice(self._options.durabilities),
            "segment.bytes": str(rng.choice((1024, 4096, 65536))),
            "index.interval.bytes": str(rng.choice((0, 256, 4096))),
            "message.timestamp.type": rng.choice(("CreateTime", "LogAppendTime")),
        }
        retention = rng.choice(self._options.retentions)
        if retention == "bytes":
            configs["retention.bytes"] = str(rng.choice((2048, 16384)))
        elif retention == "ms":
            configs["retention.ms"] = str(rng.choice((1500, 6000)))
        configs |= self._options.topic_configs
        topic = Topic(name, rng.randint(1, 3), configs, servers)
        await self._make(topic, rng)
        self.present[name] = topic

    async def churn(self, is_over: Callable[[], bool]) -> None:
        """Makes and deletes topics until it is over."""
        rng = self._rng.fork("churn")
        made = self._options.topics
        while not is_over():
            await asyncio.sleep(rng.random() * 4)
            if len(self.present) > 1 and (len(self.present) == TOPICS_MAX or rng.random() < 0.6):
                await self._replace(self.present[rng.choice(list(self.present))], rng)
            else:
                await self.create(made)
                made += 1

    async def _replace(self, topic: Topic, rng: Rng) -> None:
        """Deletes a topic, and perhaps makes another one of its name."""

        async def delete(admin: Admin) -> None:
            await admin.delete_topic(topic.name)

        self.deleted.add(topic.name)
        await self._until_done(delete, topic, rng, UnknownTopicOrPartition)
        self._world.trace.note(f"deleted {topic.name}")
        if self._options.delays_requests:
            self.uncertain[topic.name] = None
        elif rng.random() < 0.7:
            # A request that its sender has given up is still on its way for a moment.
            await asyncio.sleep(1 + rng.random())
            # While there is none: its maker is told of it later than others find it there.
            for where in topic.wheres:
                self._ledger.forgot(where, Left.NOTHING)
            await self._make(topic, rng)
            self._world.trace.sometimes("a topic was made again under its name")
            return
        del self.present[topic.name]

    async def _make(self, topic: Topic, rng: Rng) -> None:
        async def create(admin: Admin) -> None:
            await admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                replication_factor=self._options.replication_factor,
                configs=topic.configs,
            )

        await self._until_done(create, topic, rng, TopicAlreadyExists)
        self._world.trace.note(f"{topic}")

    async def _until_done(
        self,
        work: Callable[[Admin], Awaitable[None]],
        topic: Topic,
        rng: Rng,
        done: type[MillraceError],
    ) -> None:
        """`done` is the error that says that an earlier try was done after all."""
        while True:
            try:
                settings = self._options.client()
                async with Admin(topic.servers.address, rng=rng, **settings) as admin:
                    await work(admin)
                return
            except done:
                return
            except MillraceError as error:
                self._world.trace.told("admin", error)
                await asyncio.sleep(0.3)
