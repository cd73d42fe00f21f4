"""How soon the broker's event loop sends an ack after the disk has the batch.

A pass of the event loop is one call of its selector: I/O events, then every callback that was ready
when the pass began. A callback that a callback schedules runs in the next pass, after the callbacks
of all other connections, so on a busy broker every pass is a wait.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect

PASSES_MAX = 1
"""From the pass in which the worker thread wakes the loop, not included, to the pass that sends."""
ACKS = 21


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts the passes of its loop and knows when the loop is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.is_idle = threading.Event()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passes += 1
        if timeout is None or timeout > 0:
            self.is_idle.set()
        try:
            return super().select(timeout)
        finally:
            self.is_idle.clear()


class AckPasses:
    """Counts the passes from the end of each fdatasync to the next send of the loop's thread."""

    def __init__(self, selector: CountingSelector) -> None:
        self.counts: list[int] = []
        self._selector = selector
        self._loop_thread = threading.get_ident()
        self._durable_in: int | None = None

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Counts from here on."""
        sync, send, sendmsg = os.fdatasync, socket.socket.send, socket.socket.sendmsg

        def watched_sync(fd: int) -> None:
            sync(fd)
            # Where fdatasync is instant, the loop may still be in the pass that asked for it.
            self._selector.is_idle.wait()
            self._durable_in = self._selector.passes

        def watched_send(sock: socket.socket, *args: Any) -> int:
            self._on_send()
            return send(sock, *args)

        def watched_sendmsg(sock: socket.socket, *args: Any) -> int:
            self._on_send()
            return sendmsg(sock, *args)

        patch.setattr(os, "fdatasync", watched_sync)
        patch.setattr(socket.socket, "send", watched_send)
        patch.setattr(socket.socket, "sendmsg", watched_sendmsg)

    def _on_send(self) -> None:
        if threading.get_ident() == self._loop_thread and self._durable_in is not None:
            self.counts.append(self._selector.passes - self._durable_in)
            self._durable_in = None


async def produce(wire: Wire) -> None:
    await wire.produce("t", batch(b"v"))


async def commit(wire: Wire) -> None:
    request = OffsetCommitRequest("g", -1, "", None, (CommitPartition("t", 0, 1, -1, ""),))
    response = await wire.ask(request, OffsetCommitResponse)
    assert response.partitions[0].error_code == 0


@pytest.mark.parametrize("request_once", [produce, commit])
def test_an_ack_leaves_few_passes_of_the_loop_after_its_batch_is_on_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_once: Callable[[Wire], Awaitable[None]],
) -> None:
    selector = CountingSelector()

    async def request_all(port: int, passes: AckPasses) -> None:
        async with connect(port) as wire:
            await wire.create("t")
            await wire.ask(FindCoordinatorRequest(("g",)), FindCoordinatorResponse)
            await request_once(wire)
            with monkeypatch.context() as patch:
                passes.watch(patch)
                for _ in range(ACKS):
                    await request_once(wire)

    async def serve() -> list[int]:
        passes = AckPasses(selector)
        async with Broker(data=tmp_path / "data") as broker:
            # The client has a thread and a loop of its own, so that its passes do not count.
            await asyncio.to_thread(asyncio.run, request_all(broker.port, passes))
        return passes.counts

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        counts = runner.run(serve())
    assert len(counts) == ACKS
    assert median(counts) <= PASSES_MAX, f"passes of each ack: {counts}"
