"""The metadata publisher: makes the committed records this broker's image, and applies them.

Every broker runs it, whether it leads the quorum or not: one way from a committed record to an open
partition. Until `begin` the records only become the image, which `partitions.opening` then opens as
a whole; after it each change is applied when it is committed.

    committed ──► new image ──► snapshot, if due ──► applied ──► replicas that were created reported

Kafka's names: MetadataLoader, MetadataPublisher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from millrace_server.api_error import ApiError
from millrace_server.controller.applier import MetadataApplier, NotApplied
from millrace_server.controller.replica_assigner import ReplicaAssigner
from millrace_server.controller.snapshots import SnapshotWriter
from millrace_server.environment.seams import Environment
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.image_difference import ImageDifference
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.quorum.metadata_log import MetadataLog


class _Waiting(NamedTuple):
    end_offset: int
    is_published: asyncio.Future[asyncio.Future[None] | None]


class MetadataPublisher:
    """The only writer of the cache. `load` once, `begin` once, `close` at the end."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        cache: MetadataCache,
        applier: MetadataApplier,
        assigner: ReplicaAssigner,
        snapshots: SnapshotWriter,
        env: Environment,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = metadata_log
        self._cache = cache
        self._applier = applier
        self._assigner = assigner
        self._snapshots = snapshots
        self._env = env
        self._on_failure = on_failure
        self._is_applying = False
        self.on_brokers_changed: Callable[[], None] = lambda: None
        """Called after a change of the registered brokers."""
        self.applied_offset = cache.image.end_offset
        """Every change before it is applied on this broker."""
        self._one_at_a_time = asyncio.Lock()
        self._committed = asyncio.Event()
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._closed: Exception | None = None

    def load(self) -> None:
        """Takes the records that are committed now. Blocking.

        Raises `UnreadableMetadata`, `CorruptLog` and `OSError`.
        """
        for end_offset, records in self._log.read(self._cache.image.end_offset):
            delta = Delta(self._cache.image)
            for record in records:
                delta.replay(record)
            self._cache.image = delta.image(end_offset)
        self.applied_offset = self._cache.image.end_offset

    def start(self) -> None:
        """Begins to follow what is committed."""
        self._task = self._env.spawn.task(self._run(), name="metadata publisher")

    def begin(self) -> None:
        """Applies every later change; those before are opened from the image."""
        self._is_applying = True

    def on_committed(self) -> None:
        """More of the log is committed."""
        self._committed.set()

    async def published(self, end_offset: int) -> asyncio.Future[None] | None:
        """Returns when every record before `end_offset` is in the image and applied.

        The result is done when the replicas that were created for it are in service; None if there
        are none. Raises `NotApplied` when this broker's disk refuses its part; the image has the
        records all the same.
        """
        if self._cache.image.end_offset >= end_offset and not self._waiting:
            return None
        if self._closed is not None:
            raise self._closed
        waiting = _Waiting(end_offset, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._committed.set()
        return await waiting.is_published

    async def until(self, condition: Callable[[ClusterImage], bool]) -> ClusterImage:
        """Returns the first image that meets a condition, after its change is applied."""
        while not condition(self._cache.image):
            await self.published(self._cache.image.end_offset + 1)
        return self._cache.image

    async def install(self, image: ClusterImage) -> None:
        """Takes an image that is behind the committed records: a snapshot of the leader.

        Returns when it is applied.
        """
        async with self._one_at_a_time:
            await self._publish(ImageDifference(self._cache.image, image), image)

    async def close(self, reason: ApiError) -> None:
        """Applies no more; what waits ends with `reason`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end(reason)

    def _end(self, reason: Exception) -> None:
        self._closed = reason
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            _fail(each.is_published, reason)

    async def _run(self) -> None:
        try:
            while True:
                self._committed.clear()
                image = self._cache.image
                if self._log.committed_offset > image.end_offset:
                    async with self._one_at_a_time:
                        delta, end_offset = await self._env.spawn.blocking(self._next_records)
                        await self._publish(delta, delta.image(end_offset))
                else:
                    self._settle(None, None)
                    await self._committed.wait()
        except Exception as error:
            # A change that waits is refused, so that its sender asks the next active controller.
            self._end(as_api_error(error) if isinstance(error, CORE_ERRORS) else error)
            self._on_failure(error)

    def _next_records(self) -> tuple[Delta, int]:
        delta = Delta(self._cache.image)
        for end_offset, records in self._log.read(delta.before.end_offset):
            for record in records:
                delta.replay(record)
            return delta, end_offset
        return delta, delta.before.end_offset

    async def _publish(self, delta: Delta | ImageDifference, image: ClusterImage) -> None:
        are_brokers_changed = image.brokers != delta.before.brokers
        self._cache.image = image
        self._snapshots.note_commit(image)
        assigned: asyncio.Future[None] | None = None
        refused: NotApplied | None = None
        if self._is_applying:
            try:
                created = await self._applier.apply(delta)
            except NotApplied as error:
                refused = error
            else:
                assigned = self._assigner.assign(created) if created else None
        if are_brokers_changed:
            self.on_brokers_changed()
        self.applied_offset = image.end_offset
        self._settle(assigned, refused)

    def _settle(self, assigned: asyncio.Future[None] | None, refused: NotApplied | None) -> None:
        """Answers the calls of `published` whose records are in the image."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            # One that waits for what is not in the log yet holds up none that came behind it.
            if each.end_offset > self._cache.image.end_offset:
                self._waiting.append(each)
            elif refused is not None:
                _fail(each.is_published, refused)
            elif not each.is_published.done():
                each.is_published.set_result(assigned)


def _fail(future: asyncio.Future[asyncio.Future[None] | None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
