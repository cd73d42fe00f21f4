"""The partitions of a start: opened side by side, each in service as soon as it is open.

Owns the order, the number that is opened at a time, and the log lines about it. Refuses to know
what opening takes: `storage.open_log` does. A partition that has not been opened is offline with a
refusal that asks to try again, so that a long recovery of one partition delays no other.

    begin ──► not open yet ──► in service
                           ├─► read-only ──► in service    recovery could not write: disk full
                           ├─► offline ────► in service    recovery could not read: no descriptor
                           └─► offline                     only a person can mend it

A disk error at the start may pass: the broker opens such a partition again, in the background,
until it is in service. What is durable is served meanwhile, if it can be read.

Lifecycle: `begin` once, `wait` for as long as the caller likes, and `stop` before the partitions
are shut.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.log import LogConfig, LogFailed, PartitionLog
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import PartitionRegistration, Topic
from millrace_server.partitions.core_errors import as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import NotOpenYet, OpenedAgainLater, PartitionTable
from millrace_server.partitions.role import Leadership, Role
from millrace_server.partitions.storage import log_config, open_log, open_or_create_log
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.opening")
OPENERS = 4
"""Partitions opened at a time: half of the worker threads, because the partitions that are in
service already need some for their syncs and cold reads. More of them gain nothing: the CRCs are
as fast as memory, and what is left is the interpreter's lock."""
PROGRESS_MS = 2_000
"""Between two log lines about the progress of a long start."""
RETRY_MIN_MS = 1_000
RETRY_MAX_MS = 10_000
"""Between two rounds over the partitions that a disk error keeps from service. Every attempt reads
what lies behind the checkpoint, up to 32 MiB, so it is not made more often."""


class Opening:
    """Opens every partition of the image of which this broker has a replica.

    A replica that the broker has not created is created, and `assign(topic_id, number)` commits
    that before it takes appends. `on_opened(log)` is called before a partition takes appends. A bug
    is raised by `wait`, and goes to `on_failure(error)` once `wait` has returned.
    """

    def __init__(
        self,
        env: Environment,
        partitions: PartitionTable,
        cache: MetadataCache,
        defaults: Mapping[str, str],
        *,
        broker_id: int,
        assign: Callable[[uuid.UUID, int], Awaitable[None]],
        make_partition: Callable[[str, int, PartitionLog], Partition],
        take_role: Callable[[Topic, int, Partition], Awaitable[None]],
        on_opened: Callable[[PartitionLog], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._cache = cache
        self._defaults = defaults
        self._broker_id = broker_id
        self._assign = assign
        self._make_partition = make_partition
        self._take_role = take_role
        self._on_opened = on_opened
        self._on_failure = on_failure
        self._waiting: deque[tuple[Topic, int]] = deque()
        self._failed: deque[tuple[Topic, int]] = deque()
        self._retrying: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._count = self._done_count = self._scanned_bytes = 0
        self._began_ms = self._logged_ms = 0

    def begin(self) -> None:
        """Takes every partition offline that is to be opened, and starts to open them."""
        for topic in self._cache.image.topics.values():
            for number in topic.numbers_of(self._broker_id):
                self._waiting.append((topic, number))
                self._partitions.set_offline(topic.name, number, NotOpenYet(topic.name, number))
        self._count = len(self._waiting)
        self._began_ms = self._logged_ms = self._env.clock.monotonic_ms()
        self._tasks = [
            self._env.spawn.task(self._open_in_turn(), name=f"opener {number}")
            for number in range(min(OPENERS, self._count))
        ]

    @property
    def unopened_count(self) -> int:
        """Partitions of this start that were not tried yet; one that is offline was."""
        return self._count - self._done_count

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
        self._stopping.set()
        tasks = [*self._tasks, self._retrying] if self._retrying is not None else self._tasks
        if tasks:
            await asyncio.wait(tasks)

    async def put_in_service(self, topic: Topic, number: int, opened: PartitionLog) -> None:
        """Serves a partition from a log that was opened or created for it."""
        # Settings may have changed while it was opened; only partitions in service are told.
        opened.config = self._config(topic)
        self._put_in_service(topic.name, number, opened)
        current = self._cache.image.topic_by_id(topic.topic_id)
        partition = self._partitions.find(topic.name, number)
        if current is not None and partition is not None and opened.read_only_cause is None:
            await self._take_role(current, number, partition)

    def create_later(self, topic: Topic, number: int, cause: ApiError | OSError) -> None:
        """Keeps a partition offline that could not be created, and tries again if that may help."""
        error = cause if isinstance(cause, OSError) else cause.__cause__
        if isinstance(error, OSError):
            self.open_later(topic, number, error)
        elif isinstance(cause, ApiError):
            self._partitions.set_offline(topic.name, number, cause)

    def open_later(self, topic: Topic, number: int, cause: ApiError | OSError) -> None:
        """Keeps a partition offline whose directory could not be committed, and tries again."""
        refusal = OpenedAgainLater(topic.name, number, cause)
        self._partitions.set_offline(topic.name, number, refusal)
        self._retry(topic, number, cause)

    async def _open_in_turn(self) -> None:
        while self._waiting:
            topic, number = self._waiting.popleft()
            cause = await self._open(topic, number)
            if cause is not None:
                self._retry(topic, number, cause)
            self._done_count += 1
            self._tell_progress()

    async def _open(self, topic: Topic, number: int) -> OSError | ApiError | None:
        """Opens one partition; returns what keeps it from taking appends, if that may pass: an
        error of the disk, or the controller's refusal of the report."""
        name = topic.name
        if not self._is_there(topic, number):
            return None
        try:
            opened = await self._opened(topic, number)
            if opened.read_only_cause is None and not self._is_created(topic, number):
                refused = await self._report(topic, number)
                if refused is not None:
                    opened.discard()
                    if self._is_offline(topic, number):
                        later = OpenedAgainLater(name, number, refused)
                        self._partitions.set_offline(name, number, later)
                    return refused
            if not self._is_there(topic, number):
                opened.discard()
                return None
            self._scanned_bytes += opened.recovery.scanned_bytes
            await self.put_in_service(topic, number, opened)
            return opened.read_only_cause
        except ApiError as error:
            if self._is_there(topic, number):
                log.error("partition offline", topic=name, partition=number, reason=error.message)
            if self._is_offline(topic, number):
                self._partitions.set_offline(name, number, error)
            return None
        except OSError as cause:
            if self._is_offline(topic, number):
                self._partitions.set_offline(name, number, OpenedAgainLater(name, number, cause))
            return cause

    async def _opened(self, topic: Topic, number: int) -> PartitionLog:
        """The log of a partition, created if it has not been. Raises `ApiError` and `OSError`."""
        env, name, topic_id = self._env, topic.name, str(topic.topic_id)
        config, now_ms = self._config(topic), env.clock.wall_ms()
        self._partitions.being_opened.add((name, number))
        try:
            if self._is_created(topic, number):
                return await env.spawn.blocking(
                    open_log, env.disk, name, topic_id, number, config, now_ms
                )
            return await env.spawn.blocking(
                open_or_create_log,
                env.disk,
                self._cache.image,
                name,
                topic_id,
                number,
                config,
                now_ms,
            )
        finally:
            self._partitions.being_opened.discard((name, number))
            self._partitions.tell_change()

    def _is_created(self, topic: Topic, number: int) -> bool:
        current = self._cache.image.topic_by_id(topic.topic_id) or topic
        return current.partitions[number].is_created(self._broker_id)

    async def _report(self, topic: Topic, number: int) -> OSError | ApiError | None:
        """Has the directory of a replica committed; returns why it is not."""
        try:
            await self._assign(topic.topic_id, number)
        except ApiError as refused:
            return refused.__cause__ if isinstance(refused.__cause__, OSError) else refused
        return None

    def _put_in_service(self, name: str, number: int, opened: PartitionLog) -> None:
        self._on_opened(opened)
        if self._partitions.offline(name, number) is not None:
            self._partitions.add(self._make_partition(name, number, opened))
        elif opened.read_only_cause is not None:
            # The partition serves what it can read already.
            opened.discard()
        else:
            for partition in self._partitions.of_topic(name):
                if partition.number == number:
                    partition.replace_log(opened)
                    self._partitions.add(partition)

    def _is_there(self, topic: Topic, number: int) -> bool:
        """Whether a replica was not removed, with its topic or alone, while it was opened."""
        found = self._cache.image.topics.get(topic.name)
        return (
            found is not None
            and found.topic_id == topic.topic_id
            and self._broker_id in found.partitions[number].replicas
        )

    def _is_offline(self, topic: Topic, number: int) -> bool:
        return (
            self._is_there(topic, number)
            and self._partitions.offline(topic.name, number) is not None
        )

    def _retry(self, topic: Topic, number: int, cause: OSError | ApiError) -> None:
        log.error(
            "partition takes no appends until it is opened; the broker tries again",
            topic=topic.name,
            partition=number,
            is_readable=self._partitions.offline(topic.name, number) is None,
            reason=str(cause),
        )
        self._failed.append((topic, number))
        if self._retrying is None or self._retrying.done():
            self._retrying = self._env.spawn.task(self._open_failed(), name="opening again")
            self._retrying.add_done_callback(self._ended_late)

    async def _open_failed(self) -> None:
        """Goes over the partitions that failed until each is in service or given up."""
        wait_ms = RETRY_MIN_MS
        while self._failed and not await self._is_stopping_within(wait_ms):
            count = len(self._failed)
            for _ in range(count):
                if self._stopping.is_set():
                    return
                topic, number = self._failed.popleft()
                if not self._is_there(topic, number):
                    continue
                cause = await self._open(topic, number)
                if cause is not None:
                    self._failed.append((topic, number))
                else:
                    log.info("partition opened again", topic=topic.name, partition=number)
            is_progress = len(self._failed) < count
            wait_ms = RETRY_MIN_MS if is_progress else min(2 * wait_ms, RETRY_MAX_MS)

    async def _is_stopping_within(self, wait_ms: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._stopping.wait()
        return self._stopping.is_set()

    def _config(self, topic: Topic) -> LogConfig:
        current = self._cache.image.topics.get(topic.name, topic)
        return log_config(TopicConfig(current.configs, self._defaults))

    def _tell_progress(self) -> None:
        now_ms = self._env.clock.monotonic_ms()
        is_last = self._done_count == self._count
        if is_last or now_ms - self._logged_ms >= PROGRESS_MS:
            self._logged_ms = now_ms
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


async def take_role(partition: Partition, known: PartitionRegistration, broker_id: int) -> None:
    """Makes a partition lead or follow as the metadata says. Raises `ApiError`.

    A partition of the metadata's epoch has its role already. One that is read-only begins to lead
    in a new epoch when it is opened again.
    """
    epoch = known.leader_epoch
    if known.leader == broker_id:
        leads = partition.leadership.role is Role.LEADER and epoch <= partition.leader_epoch
        if leads or partition.log.read_only_cause is not None:
            return
        try:
            await partition.become_leader(epoch)
        except LogFailed as error:
            raise as_api_error(error) from error
    elif partition.leadership.role is Role.LEADER or (
        epoch >= partition.leader_epoch
        and partition.leadership != Leadership(Role.FOLLOWER, epoch, known.leader)
    ):
        await partition.become_follower(epoch, known.leader)
