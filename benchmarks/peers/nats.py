"""NATS JetStream: `nats-server` with streams on disk, and nats-py.

A topic is a stream, and a partition is one of its subjects. How often the server calls fsync is
fixed before version 2.10, and Debian's is older: there is no row with an fsync for each message.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.peers.contestant import PAGE_CACHE, Contestant, Unavailable, Way

CALL_TIMEOUT_S = 60


class Nats(Contestant):
    """One server. Its durability is that of all its streams."""

    name = "NATS JetStream"
    durabilities: ClassVar[Mapping[str, str]] = {
        PAGE_CACHE: "sync_interval 2 min, the default: acked when written to the page cache"
    }
    writers = (Way("NATS, publish_async", "jetstream", "publish", share=20, main=True),)
    readers = (Way("NATS, fetch(500)", "jetstream", "fetch", share=20, main=True),)
    verifier = ("jetstream", "push")
    paced = (Way("NATS", "jetstream", "push", main=True),)

    def version(self) -> str:
        if importlib.util.find_spec("nats") is None:
            raise Unavailable("nats-py is not installed: pip install 'millrace[bench]'")
        if shutil.which("nats-server") is None:
            raise Unavailable("no nats-server on the PATH: apt-get install nats-server")
        printed = subprocess.run(["nats-server", "--version"], capture_output=True, text=True)
        found = re.search(r"v(\d\S*)", printed.stdout)
        return found[1] if found else "unknown"

    def command(self) -> Sequence[str]:
        return [
            *("nats-server", "--addr", "127.0.0.1", "--port", str(self.port)),
            *("--jetstream", "--store_dir", str(self.data)),
        ]

    def create_topic(self, topic: str, *, partitions: int = 1, durability: str) -> None:
        async def create(context: Any) -> None:
            await context.add_stream(name=topic, subjects=[f"{topic}.*"])

        self._run(create)

    def delete_topic(self, topic: str) -> None:
        async def delete(context: Any) -> None:
            await context.delete_stream(topic)

        self._run(delete)

    def _run(self, work: Callable[[Any], Awaitable[None]]) -> None:
        import nats

        async def connected() -> None:
            client = await nats.connect(self.servers, connect_timeout=CALL_TIMEOUT_S)
            try:
                await work(client.jetstream(timeout=CALL_TIMEOUT_S))
            finally:
                await client.close()

        asyncio.run(connected())
