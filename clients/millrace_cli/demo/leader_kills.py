"""The demo's cluster: brokers as processes, whose leaders are killed while flights are sent.

Owns the cluster and the kills. `local_cluster` runs the processes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from millrace_cli.exits import CommandError, tell

if TYPE_CHECKING:
    from millrace.admin import Admin, PartitionDescription
    from millrace_cli.local_cluster.broker_process import BrokerProcess
    from millrace_cli.local_cluster.cluster import LocalCluster
    from millrace_cli.local_cluster.directory import ClusterDirectory

KILLS = 3
REPLICATION_FACTOR = 3
MIN_ISR = 2
WAIT_S = 60.0
"""Longest wait for other leaders, and for a broker that comes back."""
POLL_S = 0.05
# As of a broker in a test: the group of the demo begins at once, and misses a killed member soon.
_SETTINGS = """
group_initial_rebalance_delay_ms = 0
group_min_session_timeout_ms = 1
offsets_topic_partitions = 1
"""
Partitions = tuple["PartitionDescription", ...]


@asynccontextmanager
async def demo_cluster(brokers: int) -> AsyncIterator[LocalCluster]:
    """A cluster in a temporary directory. Raises `CommandError`."""
    from millrace_cli.local_cluster.cluster import LocalCluster, describe_end

    with _directory(brokers) as (directory, settings):
        async with LocalCluster(
            directory,
            flags=("--config", str(settings)),
            on_end=lambda broker: tell(describe_end(broker)),
        ) as cluster:
            yield cluster


@contextmanager
def _directory(brokers: int) -> Iterator[tuple[ClusterDirectory, Path]]:
    """A temporary directory of a cluster, and the file of its settings."""
    from millrace_cli.local_cluster.directory import ClusterDirectory

    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as temporary:
        settings = Path(temporary, "settings.toml")
        settings.write_text(_SETTINGS)
        directory = ClusterDirectory.open(Path(temporary, "cluster"), brokers=brokers, port=0)
        try:
            yield directory, settings
        finally:
            directory.release()


class LeaderKills:
    """Kills the broker that leads most partitions of a topic, again and again."""

    def __init__(self, cluster: LocalCluster, admin: Admin, topic: str) -> None:
        self._brokers = {broker.node_id: broker for broker in cluster.brokers}
        self._admin = admin
        self._topic = topic

    async def kill(self) -> None:
        """Kills one with SIGKILL, and starts it again when others lead in its place.

        Returns when its replicas are in sync again. Raises `CommandError`.
        """
        partitions = await self._partitions()
        leaders = Counter(each.leader for each in partitions if each.leader is not None)
        victim = self._brokers[max(leaders, key=lambda node_id: (leaders[node_id], -node_id))]
        led = [str(each.partition) for each in partitions if each.leader == victim.node_id]
        is_controller = (await self._admin.describe_quorum()).leader == victim.node_id
        killed = time.monotonic()
        await victim.kill()
        await self._until(
            lambda now: all(each.leader not in (None, victim.node_id) for each in now),
            f"other brokers lead in place of broker {victim.node_id}",
        )
        others = time.monotonic()
        await self._restart(victim)
        _print(
            f"kill: broker {victim.node_id}, leader of partition {', '.join(led)}"
            f"{' and active controller' if is_controller else ''}; others led after "
            f"{others - killed:.1f} s, and it was in sync again after "
            f"{time.monotonic() - killed:.1f} s"
        )

    async def _restart(self, broker: BrokerProcess) -> None:
        await broker.start()
        if not await broker.ready():
            raise CommandError(
                f"broker {broker.node_id} has not started again: {broker.last_words()}"
            )
        await self._until(
            lambda now: all(len(each.isr) == len(each.replicas) for each in now),
            f"the replicas of broker {broker.node_id} are in sync",
        )

    async def _until(self, is_so: Callable[[Partitions], bool], event: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    if is_so(await self._partitions()):
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise CommandError(f"it took more than {WAIT_S:.0f} s until {event}") from None

    async def _partitions(self) -> Partitions:
        return (await self._admin.describe_topic(self._topic)).partitions


class KillSchedule:
    """Kills `KILLS` times while records are sent, each time after the same share of them.

    Waits at its end for the kill in progress; an error cancels that.
    """

    def __init__(self, kills: LeaderKills, records: int) -> None:
        self._kills = kills
        self._due = [records * number // (KILLS + 1) for number in range(1, KILLS + 1)]
        self._killing: asyncio.Task[None] | None = None

    async def before_chunk(self, sent: int) -> None:
        """Begins the next kill if enough records are sent, and the last one is over."""
        if self._due and sent >= self._due[0]:
            self._due.pop(0)
            await self._finish()
            self._killing = asyncio.create_task(self._kills.kill(), name="kill a leader")

    async def _finish(self) -> None:
        if self._killing is not None:
            await self._killing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._killing is not None:
            self._killing.cancel()
            await asyncio.wait([self._killing])
        elif error is None:
            await self._finish()


def _print(line: str) -> None:
    """Prints a message to stderr, as the rest of the demo does."""
    print(line, file=sys.stderr, flush=True)
