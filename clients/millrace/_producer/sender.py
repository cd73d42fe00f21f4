"""The task that sends the requests of a producer.

Owns the requests in flight, the timer, and what is asked about topics; `produce_queue` decides what
is sent. One task per request, none per record; nothing is polled.
"""

from __future__ import annotations

import asyncio

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import UNKNOWN_TOPIC_TRIES, Cluster
from millrace._producer.accumulator import Accumulator
from millrace._producer.counters import ProducerCounters
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.produce_requests import Send
from millrace._producer.settlement import Settlement
from millrace._producer.waiters import Waiters
from millrace.config import ProducerConfig
from millrace.errors import ConnectionFailed, DeliveryTimeout, MillraceError, again
from millrace.events import EventFeed, EventKind
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.messages.producer_id import InitProducerIdRequest, InitProducerIdResponse


class Sender:
    """Sends what the accumulator holds while `run` runs.

    Wakes up when `waiters.sender_wakeup` is set.
    """

    def __init__(
        self,
        cluster: Cluster,
        produce_queue: ProduceQueue,
        accumulator: Accumulator,
        config: ProducerConfig,
        *,
        waiters: Waiters,
        settlement: Settlement,
        counters: ProducerCounters,
        feed: EventFeed,
    ) -> None:
        self._waiters = waiters
        self._wakeup = waiters.sender_wakeup
        self._settlement = settlement
        self._counters = counters
        self._cluster = cluster
        self._produce_queue = produce_queue
        self._accumulator = accumulator
        self._config = config
        self._feed = feed
        self._denials: dict[str, int] = {}
        self._finding = False
        self._find_attempts = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, tasks: BackgroundTasks) -> None:
        """Begins to send, until `tasks` end."""
        self._tasks = tasks
        tasks.start(self._run(), name="millrace-producer", lasting=True)
        tasks.start(self._keep_fresh(), name="millrace-producer-metadata", lasting=True)

    async def _run(self) -> None:
        try:
            while True:
                self._wakeup.clear()
                self._pump()
                await self._wakeup.wait()
        finally:
            self._set_timer(None)

    def _pump(self) -> None:
        """Does all that can be done now, and sets the timer for what cannot."""
        tasks = self._tasks
        accumulator, cluster = self._accumulator, self._cluster
        accumulator.needs_wakeup = False
        now_ms = monotonic_ms()
        wanted: set[str] = set()
        timeout_ms = self._config.delivery_timeout_ms
        deadlines: list[int] = []
        for topic, since_ms in accumulator.unassigned_topics(now_ms):
            count = cluster.metadata.partition_count(topic)
            if count is not None:
                self._settlement.settle(accumulator.assign(topic, count))
            elif since_ms + timeout_ms <= now_ms:
                error = DeliveryTimeout(
                    f"the partitions of {topic} could not be learned within "
                    f"delivery_timeout_ms={timeout_ms}; nothing was written"
                )
                error.__cause__ = self._settlement.last_error
                self._settlement.settle(accumulator.reject(topic, error))
            else:
                wanted.add(topic)
                deadlines.append(since_ms + timeout_ms)
        buffer_full = self._waiters.room_is_wanted or not accumulator.has_room
        drained = self._produce_queue.drain(now_ms, self._leader_of, buffer_full=buffer_full)
        self._settlement.settle(drained.settled)
        wanted |= drained.unknown_topics
        if self._finding:
            # The answer on its way may be older than what made these topics stale.
            self._produce_queue.stale_topics |= drained.unknown_topics
        elif wanted:
            self._finding = True
            tasks.start(self._find(wanted), name="millrace-producer-topics")
        if drained.wants_epoch is not None:
            tasks.start(self._ask_epoch(*drained.wants_epoch), name="millrace-producer-id")
        for send in drained.sends:
            tasks.start(self._send(send), name=f"millrace-produce-{send.node_id}")
        if drained.deadline_ms is not None:
            deadlines.append(drained.deadline_ms)
        self._set_timer(min(deadlines, default=None))

    def _set_timer(self, at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            delay_ms = max(0, at_ms - monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._wakeup.set)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        leader = self._cluster.metadata.leader(topic, partition)
        return None if leader is None else leader.node_id

    async def _send(self, send: Send) -> None:
        """One produce request, from the connection to the answer."""
        counters = self._counters
        counters.produce_requests += 1
        try:
            connection = await self._cluster.connection(send.node_id)
            # A batch that was given up meanwhile has no payload any more.
            partitions = tuple(
                ProducePartition(batch.topic, batch.partition, memoryview(batch.payload))
                for batch in send.batches
                if batch.payload is not None
            )
            if not partitions:
                raise ConnectionFailed("every batch was given up before there was a connection")
            timeout_ms = self._config.request_timeout_ms
            # The broker shall say that it was too slow before we give the connection up.
            request = ProduceRequest(self._config.wire_acks, timeout_ms * 3 // 4, partitions)
            if self._config.wire_acks == 0:
                await connection.post(request, timeout_ms=timeout_ms)
                settled = self._produce_queue.on_posted(send)
            else:
                sent_ms = monotonic_ms()
                answer = await connection.call(request, ProduceResponse, timeout_ms=timeout_ms)
                now_ms = monotonic_ms()
                counters.on_response(now_ms - sent_ms)
                settled = self._produce_queue.on_answer(send, answer.partitions, now_ms)
        except MillraceError as caught:
            counters.failed_produce_requests += 1
            error = again(caught)
            if not error.retriable:
                self._settlement.last_error = error
            settled = self._produce_queue.on_request_failed(send, error, monotonic_ms())
        if self._produce_queue.stale_topics:
            self._cluster.ask_last(send.node_id)
        counters.retried_batches += sum(not batch.settled for batch in send.batches)
        if self._produce_queue.last_error is not None:
            self._note(self._produce_queue.last_error)
            self._produce_queue.last_error = None
        self._settlement.settle(settled)
        # At once, and not when the loop runs the woken sender: until then fewer requests than
        # allowed are in flight, and a loop around `send` takes most of the loop's time.
        self._pump()

    async def _ask_epoch(self, producer_id: int, epoch: int) -> None:
        try:
            answer = await self._cluster.call(
                InitProducerIdRequest(producer_id, epoch), InitProducerIdResponse
            )
        except MillraceError as caught:
            error = again(caught)
            if error.retriable:
                self._note(error)
            self._settlement.settle(
                self._produce_queue.on_producer_id_failed(error, monotonic_ms())
            )
        else:
            self._produce_queue.on_producer_id(answer.producer_id, answer.producer_epoch)
            if producer_id >= 0:
                self._feed.emit(
                    EventKind.PRODUCER_EPOCH,
                    f"producer {answer.producer_id} goes on with epoch {answer.producer_epoch}",
                )
        self._wakeup.set()

    async def _find(self, topics: set[str]) -> None:
        """Asks for topics whose partitions or leaders are not known."""
        try:
            await self._cluster.refresh(topics)
        except MillraceError as error:
            self._note(error)
            missing = topics
        else:
            # In an order that is the same in every run: what is learned settles batches.
            missing = {topic for topic in sorted(topics) if self._still_missing(topic)}
        if missing:
            await self._cluster.pause(self._find_attempts)
            self._find_attempts += 1
        else:
            self._find_attempts = 0
        self._finding = False
        self._wakeup.set()

    def _note(self, error: MillraceError) -> None:
        """Remembers what went wrong, and says it once for as long as it stays the same."""
        kept = again(error)
        if str(error) != str(self._settlement.last_error):
            self._feed.emit(EventKind.RETRYING, f"{error}; trying again", kept)
        self._settlement.last_error = kept

    def _still_missing(self, topic: str) -> bool:
        """Takes note of what was learned of a topic; whether to ask again."""
        count = self._cluster.metadata.partition_count(topic)
        if count is not None:
            self._denials.pop(topic, None)
            if self._accumulator.knows(topic):
                self._accumulator.assign(topic, count)
            return any(self._leader_of(topic, partition) is None for partition in range(count))
        error = self._cluster.metadata.topic_errors.get(topic)
        if error is None:
            return True
        self._denials[topic] = self._denials.get(topic, 0) + 1
        if error.retriable and self._denials[topic] < UNKNOWN_TOPIC_TRIES:
            return True
        self._denials.pop(topic)
        self._settlement.settle(self._accumulator.reject(topic, error))
        self._settlement.settle(self._produce_queue.fail_all(error, topic=topic))
        self._accumulator.forget(topic)
        return False

    async def _keep_fresh(self) -> None:
        """Looks for new partitions and leaders now and then."""
        while True:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            topics = tuple(self._cluster.metadata.leaders)
            try:
                await self._cluster.refresh(topics)
            except MillraceError as error:
                self._settlement.last_error = again(error)
                continue
            for topic in topics:
                count = self._cluster.metadata.partition_count(topic)
                if count is not None and self._accumulator.knows(topic):
                    self._accumulator.assign(topic, count)
