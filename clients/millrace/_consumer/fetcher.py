"""The task that reads ahead for a consumer.

Owns the requests in flight and the timer; `positions` decides what to ask. Only long polls wait
for data: there is no timer but for retries and the age of the metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import LANE_FETCH, LANE_LONG_POLL, Cluster
from millrace._cluster.leaders import no_such_partition
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_plan import Fetch, Lookup, Validation
from millrace._consumer.offset_lookup import on_looked_up, on_lookup_failed
from millrace._consumer.offset_validation import on_validated, on_validation_failed
from millrace._consumer.positions import Positions
from millrace.config import ConsumerConfig
from millrace.errors import MillraceError, again
from millrace.events import EventFeed, EventKind
from millrace.records import TopicPartition
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.leader_epochs import OffsetForLeaderEpochResponse
from millrace_protocol.messages.list_offsets import ListOffsetsResponse


class Fetcher:
    """Keeps the buffer of `positions` filled, from `start` until its tasks end.

    `data` is set when there may be something to take, or when nothing more will come. `wake` has
    it look again: after a seek, a pause, and when something was taken.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: ConsumerConfig,
        *,
        counters: ConsumerCounters,
        feed: EventFeed,
    ) -> None:
        self.data = asyncio.Event()
        self.last_error: MillraceError | None = None
        self.last_fetch_ms: int | None = None
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._counters = counters
        self._feed = feed
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._finding = False
        self._find_attempts = 0

    def wake(self) -> None:
        """Looks again at what to fetch."""
        self._wake.set()

    def start(self, tasks: BackgroundTasks, *, on_metadata: Callable[[], None]) -> None:
        """Begins to fetch, until `tasks` end; calls `on_metadata` after each look at the topics."""
        tasks.start(self._run(tasks, on_metadata), name="millrace-fetcher", lasting=True)
        fresh = self._keep_fresh(on_metadata)
        tasks.start(fresh, name="millrace-consumer-metadata", lasting=True)

    async def _run(self, tasks: BackgroundTasks, on_metadata: Callable[[], None]) -> None:
        try:
            while True:
                self._wake.clear()
                self._pump(tasks, on_metadata)
                await self._wake.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _pump(self, tasks: BackgroundTasks, on_metadata: Callable[[], None]) -> None:
        plan = self._positions.plan(monotonic_ms(), self._leader_of)
        for fetch in plan.fetches:
            tasks.start(self._fetch(fetch), name=f"millrace-fetch-{fetch.node_id}")
        for lookup in plan.lookups:
            tasks.start(self._look_up(lookup), name=f"millrace-lookup-{lookup.node_id}")
        for each in plan.validations:
            tasks.start(self._validate(each), name=f"millrace-validation-{each.node_id}")
        if plan.unknown_topics and not self._finding:
            self._finding = True
            finding = self._find(plan.unknown_topics, on_metadata)
            tasks.start(finding, name="millrace-consumer-topics")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.deadline_ms is not None:
            delay_ms = max(0, plan.deadline_ms - monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._wake.set)
        if self._positions.is_ready:
            self.data.set()

    def _leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        leader = self._cluster.metadata.leader_or_replica(topic, partition)
        return None if leader is None else (leader.node_id, leader.epoch)

    async def _fetch(self, fetch: Fetch) -> None:
        self._counters.fetch_requests += 1
        try:
            lane = LANE_FETCH if fetch.hot else LANE_LONG_POLL
            connection = await self._cluster.connection(fetch.node_id, lane=lane)
            sent_ms = monotonic_ms()
            answer = await connection.call(
                fetch.request, FetchResponse, timeout_ms=self._config.request_timeout_ms
            )
        except MillraceError as error:
            self._counters.failed_fetch_requests += 1
            self._cluster.ask_last(fetch.node_id)
            self._positions.on_fetch_failed(fetch, again(error), monotonic_ms())
        else:
            self.last_fetch_ms = now_ms = monotonic_ms()
            self._counters.on_response(now_ms - sent_ms)
            self._positions.on_fetched(fetch, answer.partitions, now_ms)
            if self._positions.is_ready and not fetch.hot:
                # A reader waits for this response: it goes on before the next long poll is sent.
                self.data.set()
            self._tell_resets()
        self._tell_failures()
        self._wake.set()

    async def _look_up(self, lookup: Lookup) -> None:
        try:
            connection = await self._cluster.connection(lookup.node_id)
            answer = await connection.call(
                lookup.request, ListOffsetsResponse, timeout_ms=self._config.request_timeout_ms
            )
        except MillraceError as error:
            on_lookup_failed(self._positions, lookup, again(error), monotonic_ms())
        else:
            on_looked_up(self._positions, lookup, answer.partitions, monotonic_ms())
        self._tell_failures()
        self.data.set()
        self._wake.set()

    async def _validate(self, validation: Validation) -> None:
        try:
            connection = await self._cluster.connection(validation.node_id)
            answer = await connection.call(
                validation.request,
                OffsetForLeaderEpochResponse,
                timeout_ms=self._config.request_timeout_ms,
            )
        except MillraceError as error:
            on_validation_failed(self._positions, validation, again(error), monotonic_ms())
        else:
            on_validated(self._positions, validation, answer.partitions, monotonic_ms())
        self._tell_resets()
        self._tell_failures()
        self._wake.set()

    async def _find(self, topics: set[str], on_metadata: Callable[[], None]) -> None:
        """Asks for the leaders of topics; pauses where they are still unknown."""
        try:
            await self._cluster.refresh(topics)
        except MillraceError as error:
            self.note(error)
            found = False
        else:
            on_metadata()
            for topic in sorted(topics & self._cluster.metadata.topic_errors.keys()):
                denied = self._cluster.metadata.topic_errors[topic]
                self._positions.on_topic_denied(topic, denied, monotonic_ms())
            found = True
            for where in self._positions.assigned():
                found &= self._is_led(where)
                count = self._cluster.metadata.partition_count(where.topic)
                if count is not None and where.partition >= count:
                    missing = no_such_partition(where, count)
                    self._positions.on_partition_denied(where, missing, monotonic_ms())
            self._tell_failures()
        if found:
            self._find_attempts = 0
        else:
            await self._cluster.pause(self._find_attempts)
            self._find_attempts += 1
        self._finding = False
        self._wake.set()

    def _is_led(self, where: TopicPartition) -> bool:
        return self._cluster.metadata.leader_or_replica(*where) is not None

    async def _keep_fresh(self, on_metadata: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            try:
                await self._cluster.refresh(tuple(self._cluster.metadata.leaders))
            except MillraceError as error:
                self.note(error)
            else:
                on_metadata()

    def _tell_resets(self) -> None:
        for reset in self._positions.resets:
            self._feed.emit(EventKind.OFFSET_RESET, reset.sentence)
        self._positions.resets.clear()

    def _tell_failures(self) -> None:
        """Tells why partitions wait for another try."""
        for error in self._positions.failures:
            self.note(error)
        self._positions.failures.clear()

    def note(self, error: MillraceError) -> None:
        """Tells of an error that is met by trying again; once, however often it is met."""
        kept = again(error)
        if str(error) != str(self.last_error):
            self._feed.emit(EventKind.FETCH_FAILED, str(error), kept)
        self.last_error = kept
