"""Redis Streams: `redis-server` with an append-only file, and redis-py.

A partition is a stream of its own. All records are in memory, and the append-only file is read at
a start only.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.peers.contestant import FSYNC, Contestant, Unavailable, Way

EVERY_SECOND = "fsync each second"
_SETTINGS = {EVERY_SECOND: "everysec", FSYNC: "always"}
DELETE_COUNT = 1_000


class Redis(Contestant):
    """One server. The durability is the server's `appendfsync`, set before each round."""

    name = "Redis Streams"
    durabilities: ClassVar[Mapping[str, str]] = {
        EVERY_SECOND: "appendfsync everysec, the default: a crash may lose a second",
        FSYNC: "appendfsync always: acked after fdatasync, which commands that wait share",
    }
    writers = (
        Way("Redis, pipelined XADD", "redis_streams", "xadd", EVERY_SECOND, share=5, main=True),
        Way("Redis, pipelined XADD, fsync", "redis_streams", "xadd", FSYNC, share=5),
    )
    readers = (Way("Redis, XREAD", "redis_streams", "xread", EVERY_SECOND, share=5, main=True),)
    verifier = ("redis_streams", "xread")
    paced = (
        Way("Redis", "redis_streams", "xread", EVERY_SECOND, main=True),
        Way("Redis, fsync", "redis_streams", "xread", FSYNC),
    )
    reads_from_disk = False

    def version(self) -> str:
        if importlib.util.find_spec("redis") is None:
            raise Unavailable("redis is not installed: pip install 'millrace[bench]'")
        if shutil.which("redis-server") is None:
            raise Unavailable("no redis-server on the PATH: apt-get install redis-server")
        printed = subprocess.run(["redis-server", "--version"], capture_output=True, text=True)
        found = re.search(r"v=(\S+)", printed.stdout)
        return found[1] if found else "unknown"

    def command(self) -> Sequence[str]:
        return [
            *("redis-server", "--bind", "127.0.0.1", "--port", str(self.port)),
            *("--dir", str(self.data), "--save", "", "--appendonly", "yes"),
        ]

    def create_topic(self, topic: str, *, partitions: int = 1, durability: str) -> None:
        """Streams are made by their first record: this sets the durability of the server."""
        with self._connect() as client:
            client.config_set("appendfsync", _SETTINGS[durability])

    def delete_topic(self, topic: str) -> None:
        with self._connect() as client:
            for name in client.scan_iter(match=f"{topic}:*", count=DELETE_COUNT):
                client.unlink(name)

    def _connect(self) -> Any:
        import redis

        # A server that reads its file refuses all commands until it is done.
        retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), 1_000)
        return redis.Redis(
            port=self.port,
            retry=retry,
            retry_on_error=[redis.exceptions.BusyLoadingError, redis.exceptions.ConnectionError],
        )
