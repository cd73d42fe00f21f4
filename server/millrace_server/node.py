"""A node: one broker with its port, from an unlocked directory to a drained shutdown."""

from __future__ import annotations

import asyncio

from millrace_server.broker import Broker
from millrace_server.config import BrokerConfig
from millrace_server.dialects import dialects_of
from millrace_server.environment.seams import ColdReads, Environment
from millrace_server.logs import get_logger
from millrace_server.net.server import Server

log = get_logger("millrace.node")


class Node:
    """Lives from `start` to `stop`, on one event loop. `env.disk` is locked by the caller."""

    def __init__(
        self, config: BrokerConfig, env: Environment, *, cold_reads: ColdReads | None = None
    ) -> None:
        self.config = config
        self.broker = Broker(config, env, cold_reads=cold_reads)
        self.server = Server(
            env,
            config.limits,
            cold_reads=cold_reads,
            scheduler=self.broker.scheduler,
            statistics=self.broker.statistics,
        )
        self.address: tuple[str, int] = config.listen_address

    async def start(self) -> tuple[str, int]:
        """Opens the data and listens; returns the address bound.

        Raises `ListenError` and what `Broker.start` raises; nothing is left running then.
        """
        await self.broker.start()
        try:
            dialects = dialects_of(self.broker.services, self.config)
            self.address = await self.server.start(dialects, *self.config.listen_address)
            await self._advertise(self.config.advertised_address or self.address)
        except (Exception, asyncio.CancelledError):
            await self.server.drain(0)
            await self.broker.stop()
            raise
        log.info("listening", host=self.address[0], port=self.address[1])
        return self.address

    async def _advertise(self, address: tuple[str, int]) -> None:
        if address != self.broker.cluster.address:
            self.broker.cluster.address = address
            await self.broker.register()

    async def stop(self) -> None:
        """Lets requests finish, closes connections, and makes everything durable."""
        log.info("stopping", connections=len(self.server.connections))
        self.broker.answer_waiting()
        await self.server.drain(self.config.drain_timeout_ms)
        await self.broker.stop()
        log.info("stopped")

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; raises the disk's error when the broker cannot go on."""
        stopping = self.broker.env.spawn.task(stop.wait(), name="millrace stop")
        try:
            await asyncio.wait((stopping, self.broker.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self.broker.failed.done():
            self.broker.failed.result()
