"""The partitions of a start: opened side by side, each in service as soon as it is open.

Owns the order, how many are opened at a time, and what is said meanwhile. Refuses to know what
opening takes: `storage.open_log` does. A partition whose turn has not come is offline with a
refusal that asks to try again, so that a long recovery of one keeps nobody from the others.

    begin ──► not open yet ──► in service
                           └─► offline, and the reason is logged

Lifecycle: `begin` once, `wait` for as long as one likes, and `stop` before the partitions are
shut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.logs import get_logger
from millrace_server.metadata.image import ClusterImage, Topic
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import NotOpenYet, PartitionTable
from millrace_server.partitions.storage import log_config, open_log
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.opening")
OPENERS = 4
"""Partitions opened at a time: half of the worker threads, because the partitions that are in
service already need some for their syncs and cold reads. More of them gain nothing: the CRCs are
as fast as memory, and what is left is the interpreter's lock."""
PROGRESS_MS = 2_000
"""How often a long start says how far it is."""


class Opening:
    """Opens every partition of the image. `on_failure(error)` is told of a bug, once it is late.

    Late is after `wait` has returned; before that, `wait` raises it.
    """

    def __init__(
        self,
        env: Environment,
        partitions: PartitionTable,
        image: ClusterImage,
        defaults: Mapping[str, str],
        *,
        make_partition: Callable[[str, int, PartitionLog], Partition],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._image = image
        self._defaults = defaults
        self._make_partition = make_partition
        self._on_failure = on_failure
        self._waiting: deque[tuple[Topic, int]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._count = self._done_count = self._scanned_bytes = 0
        self._began_ms = self._said_ms = 0

    def begin(self) -> None:
        """Takes every partition offline that is to be opened, and starts to open them."""
        for topic in self._image.topics.values():
            for number in range(topic.partitions):
                self._waiting.append((topic, number))
                self._partitions.set_offline(topic.name, number, NotOpenYet(topic.name, number))
        self._count = len(self._waiting)
        self._began_ms = self._said_ms = self._env.clock.monotonic_ms()
        self._tasks = [
            self._env.spawn.task(self._open_in_turn(), name=f"opener {number}")
            for number in range(min(OPENERS, self._count))
        ]

    async def wait(self, timeout_ms: int) -> None:
        """Returns when every partition is in service or offline, or the time is over."""
        if not self._tasks:
            return
        done, late = await asyncio.wait(
            self._tasks, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            task.result()
        if late:
            log.info(
                "serving while partitions are opened",
                opened=self._done_count,
                partitions=self._count,
            )
        for task in late:
            task.add_done_callback(self._ended_late)

    async def stop(self) -> None:
        """Opens no more; returns when nothing is being opened. What is open stays in service."""
        self._waiting.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _open_in_turn(self) -> None:
        while self._waiting:
            await self._open(*self._waiting.popleft())
            self._done_count += 1
            self._tell_progress()

    async def _open(self, topic: Topic, number: int) -> None:
        env, name = self._env, topic.name
        try:
            opened = await env.spawn.blocking(
                open_log,
                env.disk,
                name,
                topic.topic_id,
                number,
                self._config(topic),
                env.clock.wall_ms(),
            )
        except ApiError as refused:
            log.error("partition offline", topic=name, partition=number, reason=refused.message)
            self._partitions.set_offline(name, number, refused)
            return
        # They may have been changed while it was opened, which only partitions in service hear.
        opened.config = self._config(topic)
        self._scanned_bytes += opened.recovery.scanned_bytes
        self._partitions.add(self._make_partition(name, number, opened))

    def _config(self, topic: Topic) -> LogConfig:
        return log_config(TopicConfig(topic.configs, self._defaults))

    def _tell_progress(self) -> None:
        now_ms = self._env.clock.monotonic_ms()
        is_last = self._done_count == self._count
        if is_last or now_ms - self._said_ms >= PROGRESS_MS:
            self._said_ms = now_ms
            log.info(
                "partitions opened" if is_last else "opening partitions",
                opened=self._done_count,
                partitions=self._count,
                scanned_bytes=self._scanned_bytes,
                after_ms=now_ms - self._began_ms,
            )

    def _ended_late(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(error)
