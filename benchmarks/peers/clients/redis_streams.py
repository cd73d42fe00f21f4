"""redis-py with hiredis: pipelines of XADD, and XREAD."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import redis

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Stalled, Taken
from benchmarks.peers.values import cycled

COMMANDS_PER_PIPELINE = 500
RECORDS_PER_CALL = 1_000
FIELD = b"v"


class Streams(Client):
    """A partition is a stream, which pipelines take in turns. Its calls block."""

    _client: Any = None

    async def open_producer(self) -> None:
        host, _, port = self.task.servers.partition(":")
        self._client = redis.Redis(host, int(port))
        self._client.ping()
        self._names = [f"{self.task.topic}:{partition}" for partition in self.task.partitions]
        self._turn = 0

    async def open_consumer(self) -> None:
        await self.open_producer()
        self._positions: dict[str, bytes | str] = dict.fromkeys(self._names, "0")

    async def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _add(self, values: Sequence[bytes], name: str | None = None) -> None:
        if name is None:
            name = self._names[self._turn % len(self._names)]
            self._turn += 1
        pipeline = self._client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd(name, {FIELD: value})
        pipeline.execute()

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        name = None if partition is None else f"{self.task.topic}:{partition}"
        for first in range(0, count, COMMANDS_PER_PIPELINE):
            self._add(cycled(values, first, min(COMMANDS_PER_PIPELINE, count - first)), name)
        return 0.0

    def _some(self) -> list[bytes]:
        found = self._client.xread(
            self._positions, count=RECORDS_PER_CALL, block=int(TIMEOUT_S * 1000)
        )
        if not found:
            raise Stalled("Redis: records did not arrive")
        values = []
        for name, entries in found:
            self._positions[name.decode()] = entries[-1][0]
            values += [fields[FIELD] for _, fields in entries]
        return values

    async def consume(self, least: int) -> Taken:
        taken = Taken()
        while taken.records < least:
            values = self._some()
            taken.records += len(values)
            taken.value_bytes += sum(map(len, values))
        return taken

    async def send(self, values: Sequence[bytes]) -> None:
        self._add(values)

    async def flush(self) -> None:
        pass

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            yield self._some()
