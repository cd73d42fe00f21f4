"""A local cluster: its processes, from start to stop.

    async with LocalCluster(directory) as cluster:      # each broker serves
        ... cluster.servers, cluster.brokers[1].kill() ...

Owns the order: all brokers start at once, since a new cluster needs all of them, and stop one after
the other, so that each hands its partitions over. The last ones cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from millrace_cli.exits import Exit, tell
from millrace_cli.local_cluster.broker_process import BrokerProcess
from millrace_cli.local_cluster.directory import ClusterDirectory, LocalClusterError

START_S = 90.0
"""Longest wait for all brokers: they wait 60 s for their quorum."""
STOP_S = 30.0
"""Longest wait for the end of one broker: twice 10 s to hand over and to answer requests."""
POLL_S = 0.05


def _ignore(broker: BrokerProcess) -> None:
    """Stands for a callback that is not given."""


class LocalCluster:
    """`start` once, `stop` once. `on_end(broker)` is called when a broker ends unasked."""

    def __init__(
        self,
        directory: ClusterDirectory,
        *,
        flags: Sequence[str] = (),
        on_end: Callable[[BrokerProcess], None] = _ignore,
    ) -> None:
        """`flags` are those of `millrace serve`, for each broker."""
        layout = directory.layout
        self.servers = layout.servers
        self.brokers = [
            BrokerProcess(
                ports,
                layout,
                data=directory.data(ports),
                log=directory.log(ports),
                flags=tuple(flags),
                on_end=self._note_end,
            )
            for ports in layout.brokers
        ]
        self._on_end = on_end
        self._is_started = False

    async def start(self) -> None:
        """Returns when every broker is in service. Raises `LocalClusterError`.

        Brokers that have started are left to `stop`.
        """
        try:
            async with asyncio.timeout(START_S):
                for broker in self.brokers:
                    await broker.start()
                await asyncio.gather(*map(self._until_ready, self.brokers))
                await self._until_in_service()
        except TimeoutError:
            raise LocalClusterError(
                Exit.UNAVAILABLE,
                f"not all brokers are in service after {START_S:.0f} s; their logs are "
                f"{self.brokers[0].log} and those beside it",
            ) from None
        except OSError as error:
            raise LocalClusterError(Exit.DISK, f"a broker cannot be started: {error}") from None
        self._is_started = True

    @property
    def stop_s(self) -> float:
        """More than `stop` takes."""
        return STOP_S * (len(self.brokers) + 1)

    async def wait(self) -> None:
        """Returns when no broker runs any more."""
        for broker in self.brokers:
            await broker.wait()

    async def stop(self) -> bool:
        """Stops all brokers; whether each has ended in order. When cancelled it kills them."""
        in_order = True
        try:
            for broker in self.brokers:
                ended = await broker.stop(within_s=STOP_S)
                if not ended:
                    tell(f"broker {broker.node_id} did not end in order: {_how(broker)}")
                in_order &= ended
        finally:
            await asyncio.gather(*(broker.kill() for broker in self.brokers if broker.is_running))
        return in_order

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _until_ready(self, broker: BrokerProcess) -> None:
        await broker.ready()
        self._check_running(broker)

    async def _until_in_service(self) -> None:
        from millrace.admin import Admin

        wanted = {broker.node_id for broker in self.brokers}
        async with Admin(self.servers, client_id="millrace-cli") as admin:
            while {each.node_id for each in (await admin.describe_cluster()).brokers} != wanted:
                for broker in self.brokers:
                    self._check_running(broker)
                await asyncio.sleep(POLL_S)

    def _check_running(self, broker: BrokerProcess) -> None:
        if not broker.is_running:
            raise LocalClusterError(
                _exit_of(broker),
                f"broker {broker.node_id} has not started: {broker.last_words()} "
                f"({_how(broker)}; its log is {broker.log})",
            )

    def _note_end(self, broker: BrokerProcess) -> None:
        if self._is_started:
            self._on_end(broker)


def describe_end(broker: BrokerProcess) -> str:
    """How the process of a broker has ended, and how to start another one."""
    why = "" if broker.exit_code < 0 else f", {broker.last_words()}"
    return (
        f"broker {broker.node_id} has ended ({_how(broker)}{why}), its log is {broker.log}; start "
        f"it again with {broker.command}"
    )


def _how(broker: BrokerProcess) -> str:
    code = broker.exit_code
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _exit_of(broker: BrokerProcess) -> Exit:
    """The exit code of the command: that of the broker, if it is one of `millrace serve`."""
    known = (Exit.USAGE, Exit.LOCKED, Exit.LISTEN, Exit.DISK, Exit.UNAVAILABLE)
    return Exit(broker.exit_code) if broker.exit_code in known else Exit.REFUSED
