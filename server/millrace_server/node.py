"""A node: one broker with its port, from an unlocked directory to a drained shutdown."""

from __future__ import annotations

import asyncio

from millrace_server.broker import Broker
from millrace_server.config import BrokerConfig
from millrace_server.dialects import broker_dialects_of, clients_of, dialects_of
from millrace_server.environment.seams import ColdReads, Environment
from millrace_server.listeners import Address, ListenerConfig
from millrace_server.logs import get_logger
from millrace_server.net.server import Server
from millrace_server.peers.connections import PeerConnections
from millrace_server.statistics import metrics

log = get_logger("millrace.node")


class Node:
    """Lives from `start` to `stop`, on one event loop. `env.disk` is locked by the caller."""

    def __init__(
        self, config: BrokerConfig, env: Environment, *, cold_reads: ColdReads | None = None
    ) -> None:
        self.config = config
        self.peers = PeerConnections(
            env,
            address_of=lambda broker_id: self.broker.metadata.address_of(broker_id),
            hello=lambda broker_id: self.broker.metadata.hello(broker_id),
            has_tls=config.has_broker_tls,
        )
        self.broker = Broker(
            config,
            env,
            cold_reads=cold_reads,
            peers=self.peers,
            listen_for_brokers=self._listen_for_brokers,
        )
        self.broker_server: Server | None = None
        """Listens for the other brokers of the cluster; None in a cluster of one."""
        self.server = Server(
            env,
            config.limits,
            cold_reads=cold_reads,
            scheduler=self.broker.scheduler,
            statistics=self.broker.statistics,
            delay_ms=self.broker.throttle.connection_delay_ms,
            shares=config.shares,
        )
        self.addresses: dict[str, Address] = {each.name: each.address for each in config.listeners}
        """Where the broker listens for clients, by listener."""
        self.address: Address = config.listen_address
        """That of the first listener."""
        self.broker.statistics.gauge(metrics.READY, lambda: int(self.not_ready_reason is None))

    @property
    def not_ready_reason(self) -> str | None:
        """Why no client should be sent to this broker now, in one sentence; None if it is ready.

        A partition that could not be opened is no reason: the broker serves all others.
        """
        broker = self.broker
        if broker.failed.done():
            return "The disk or the metadata cannot be used, and the broker ends"
        reason = broker.lifecycle.out_of_service_reason
        if reason is not None:
            return reason
        if broker.opening.unopened_count:
            return f"Partitions that are not open yet: {broker.opening.unopened_count}"
        return None if self.server.is_listening else "The broker does not listen for clients yet"

    async def start(self) -> Address:
        """Opens the data and listens; returns the address bound by the first listener.

        Raises `ListenError` and what `Broker.start` raises; nothing is left running then.
        """
        try:
            await self.broker.start()
        except BaseException:
            await self._stop_listening_for_brokers()
            raise
        try:
            dialects = dialects_of(self.broker.services, self.config)
            listeners = self.config.listeners
            bound = await self.server.start(dialects, listeners)
            self.address = bound[0]
            self.addresses = {each.name: at for each, at in zip(listeners, bound, strict=True)}
            await self._advertise(
                {each.name: each.advertised or self.addresses[each.name] for each in listeners}
            )
        except (Exception, asyncio.CancelledError):
            await self.server.drain(0)
            await self._stop_broker()
            raise
        clients = clients_of(self.config)
        for name, (host, port) in self.addresses.items():
            log.info("listening", listener=name, host=host, port=port, clients=clients)
        return self.address

    async def _advertise(self, addresses: dict[str, Address]) -> None:
        if addresses != self.broker.cluster.addresses:
            self.broker.cluster.addresses = addresses
            await self.broker.unless_failed(self.broker.register())

    def reload(self, config: BrokerConfig) -> None:
        """Puts settings into force that may differ from the others in those that reload."""
        self.config = self.broker.config = config
        self.broker.cluster.reload(config)
        self.broker.services.authorizer.reload(config)
        self.broker.authentication.reload(config)
        self.server.reload(config.limits)

    async def stop(self) -> None:
        """Lets requests finish, closes connections, and makes everything durable."""
        log.info("stopping", connections=len(self.server.connections))
        await self.broker.hand_over()
        self.broker.answer_waiting()
        await self.server.drain(self.config.drain_timeout_ms)
        await self._stop_broker()
        log.info("stopped")

    async def _listen_for_brokers(self) -> None:
        address = self.config.broker_listen_address
        if address is None:
            return
        self.broker_server = Server(
            self.broker.env, self.config.limits, scheduler=self.broker.scheduler
        )
        dialects = broker_dialects_of(self.broker.services, self.config)
        listener = ListenerConfig(
            "broker", address, is_tls=self.config.has_broker_tls, is_for_brokers=True
        )
        ((host, port),) = await self.broker_server.start(dialects, [listener])
        log.info("listening for brokers", host=host, port=port)

    async def _stop_broker(self) -> None:
        await self.broker.stop()
        await self._stop_listening_for_brokers()

    async def _stop_listening_for_brokers(self) -> None:
        await self.peers.close()
        if self.broker_server is not None:
            await self.broker_server.drain(0)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; raises the disk's error when the broker cannot go on."""
        stopping = self.broker.env.spawn.task(stop.wait(), name="millrace stop")
        try:
            await asyncio.wait((stopping, self.broker.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self.broker.failed.done():
            self.broker.failed.result()
