"""A broker on an event loop in a thread, for code that has no loop of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace_server.statistics import Statistics
from millrace_server.testing.broker import Broker
from millrace_server.testing.loop_thread import LoopThread


class BrokerThread:
    """The same broker as `Broker`, for synchronous code."""

    def __init__(self, *, data: str | Path | None = None, port: int = 0, **settings: Any) -> None:
        self._broker = Broker(data=data, port=port, **settings)
        self._thread = LoopThread("millrace broker")

    @property
    def servers(self) -> str:
        """HOST:PORT, as clients take it."""
        return self._broker.servers

    def servers_of(self, listener: str) -> str:
        """The address of a listener of `listen`, as clients take it."""
        return self._broker.servers_of(listener)

    @property
    def port(self) -> int:
        """The TCP port."""
        return self._broker.port

    @property
    def metrics_url(self) -> str:
        """See `Broker.metrics_url`."""
        return self._broker.metrics_url

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._broker.data

    def statistics(self, prefix: str = "") -> Statistics:
        """See `Broker.statistics`."""

        async def read() -> Statistics:
            return self._broker.statistics(prefix)

        return self._thread.run(read())

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self._broker.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._broker.__aexit__(None, None, None))
        finally:
            self._thread.end()
