"""The positions of a consumer, its read-ahead, and its next requests.

Owns positions, the read-ahead buffer and its bounds, the choice of partitions for the next fetch,
and what an answer means. Knows no event loop, no clock and no network; `now_ms` is of one
monotonic clock. For each partition, where known:

    position <= from_offset of the first buffered slice <= fetch_offset

Answers on a connection come in the order of the requests, so a long poll holds up what is behind
it. Each broker therefore has at most two fetches, on connections of their own: one that does not
wait, for `hot` partitions, which are known or supposed to have more; and one long poll for those
that were read to their end.

An answer to a fetch or lookup that was sent before the last `seek` is recognised by its `version`
and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace._backoff import Rng, backoff_ms
from millrace._broker_error import broker_error
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_plan import Fetch, OffsetReset, Plan, lookups_of, validations_of
from millrace._consumer.fetched_batches import kept, whole_batches
from millrace._consumer.partition_state import (
    Hold,
    PartitionState,
    Slice,
    error_without_start,
)
from millrace._consumer.read_epochs import NO_EPOCH, ReadEpochs
from millrace.config import ConsumerConfig
from millrace.errors import (
    BrokerError,
    CorruptMessage,
    MessageTooLarge,
    MillraceError,
    OffsetOutOfRange,
    StorageFailed,
)
from millrace.records import TopicPartition
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.fetch import FetchPartition, FetchPartitionResult, FetchRequest
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST

DENIALS_MAX = 4
"""Times a broker must deny a topic before it is believed: it may just have been created."""

LeaderOf = Callable[[str, int], tuple[int, int] | None]
"""`(node_id, leader_epoch)` of `(topic, partition)`, or None while none is known."""


class Positions:
    """All partitions of a consumer. `buffered_bytes` stays below `buffer_bytes`, but for what one
    answer overshoots with a batch that is larger than was asked for.
    """

    def __init__(self, config: ConsumerConfig, *, rng: Rng, counters: ConsumerCounters) -> None:
        self.buffered_bytes = 0
        self.in_flight_requests = 0
        self.stale_topics: set[str] = set()
        self.resets: list[OffsetReset] = []
        self.failures: list[MillraceError] = []
        """Why partitions wait for another try, each reason once; the caller reports and clears."""
        self.out_of_range_policy = config.out_of_range_policy
        self._config = config
        self._rng = rng
        self._counters = counters
        self._states: dict[TopicPartition, PartitionState] = {}
        self._served: dict[PartitionState, None] = {}
        """In the order they are served in. Apart, so that another thread finds all in `_states`."""
        self._ready: dict[PartitionState, None] = {}
        self._fetching: set[tuple[int, bool]] = set()
        self._reserved_bytes = 0

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, where: TopicPartition) -> bool:
        return where in self._states

    def __getitem__(self, where: TopicPartition) -> PartitionState:
        return self._states[where]

    def assigned(self) -> list[TopicPartition]:
        """All partitions, in the order they are served in."""
        return [state.where for state in self._served]

    def states(self) -> list[PartitionState]:
        """All partitions; for any thread, as the list is copied in one step."""
        return list(self._states.values())

    def waiting(self) -> dict[TopicPartition, MillraceError]:
        """The partitions whose last fetch or lookup failed, and why; each is tried again."""
        return {
            where: state.last_error
            for where, state in self._states.items()
            if state.last_error is not None
        }

    # User calls

    def assign(self, partitions: Iterable[TopicPartition], reset: int | None) -> None:
        """Reads exactly `partitions`; new ones from where `reset` says, the others go on."""
        wanted = dict.fromkeys(partitions)
        self.remove([where for where in self._states if where not in wanted])
        self.add(wanted, reset)

    def add(self, partitions: Iterable[TopicPartition], reset: int | None) -> None:
        """Reads `partitions` too, those that are new from where `reset` says."""
        for where in partitions:
            if where not in self._states:
                state = self._states[where] = PartitionState(where)
                self._served[state] = None
                state.reset = reset

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these no more."""
        for where in partitions:
            state = self._states.pop(where, None)
            if state is not None:
                del self._served[state]
                self._drop(state)

    def seek(self, state: PartitionState, offset: int) -> None:
        """Goes on at `offset`."""
        self._drop(state)
        state.position = state.fetch_offset = offset
        state.reset = None

    def go_back(self, state: PartitionState, offset: int) -> None:
        """Goes on at `offset`, before which the records are those that were read."""
        epochs = state.epochs
        epochs.truncate_to(offset)
        self.seek(state, offset)
        state.epochs = epochs

    def reset(self, state: PartitionState, timestamp_ms: int) -> None:
        """Goes on where a lookup of `timestamp_ms` says."""
        self._drop(state)
        state.position = None
        state.reset = timestamp_ms

    def pause(self, state: PartitionState) -> None:
        """Returns no records and fetches none; the buffer stays."""
        state.paused = True
        self._ready.pop(state, None)

    def resume(self, state: PartitionState) -> None:
        """Undoes `pause`."""
        state.paused = False
        self._note_ready(state)

    def hold(self, state: PartitionState, why: Hold) -> None:
        """As `pause`, for a reason of the consumer's own."""
        state.holds |= why
        self._ready.pop(state, None)

    def release(self, state: PartitionState, why: Hold) -> None:
        """Undoes `hold` for this reason."""
        state.holds &= ~why
        self._note_ready(state)

    def refetch(self, state: PartitionState) -> None:
        """Drops the buffer and reads again from the position."""
        position = state.position
        if position is not None:
            self.seek(state, position)

    # Handing out

    @property
    def is_ready(self) -> bool:
        """Whether `take` has something."""
        return bool(self._ready)

    def take(self, now_ms: int) -> tuple[PartitionState, Slice] | None:
        """The next slice, of each partition in turn. Raises the error of a partition, once."""
        while self._ready:
            state = next(iter(self._ready))
            del self._ready[state]
            if state.slices:
                taken = state.slices.popleft()
                self.buffered_bytes -= len(taken.data)
                state.buffered_bytes -= len(taken.data)
                self._note_ready(state)
                return state, taken
            if state.error is not None:
                raise self._take_error(state, now_ms)
        return None

    def _take_error(self, state: PartitionState, now_ms: int) -> MillraceError:
        assert state.error is not None
        error, state.error = state.error, None
        self.back_off(state, now_ms)
        return error

    def put_back(self, state: PartitionState, rest: Slice) -> None:
        """Makes `rest` the next slice of its partition."""
        state.slices.appendleft(rest)
        state.buffered_bytes += len(rest.data)
        self.buffered_bytes += len(rest.data)
        self._note_ready(state)

    # Asking

    def plan(self, now_ms: int, leader_of: LeaderOf) -> Plan:
        """The requests to send to brokers now."""
        plan = Plan()
        plan.unknown_topics, self.stale_topics = self.stale_topics, set()
        by_broker: dict[tuple[int, bool], list[tuple[PartitionState, int]]] = {}
        lookups: dict[int, list[PartitionState]] = {}
        doubtful: dict[int, list[tuple[PartitionState, int]]] = {}
        for state in self._served:
            if state.in_flight or state.error is not None or state.holds:
                continue
            if state.retry_at_ms > now_ms:
                if plan.deadline_ms is None or state.retry_at_ms < plan.deadline_ms:
                    plan.deadline_ms = state.retry_at_ms
                continue
            if state.position is None and state.reset is None:
                state.error = error_without_start(state)
                self._note_ready(state)
                continue
            if state.position is not None and (
                state.paused or state.buffered_bytes > self._config.max_partition_bytes
            ):
                continue
            leader = leader_of(*state.where)
            if leader is None:
                plan.unknown_topics.add(state.where.topic)
            elif state.position is None:
                lookups.setdefault(leader[0], []).append(state)
            elif state.must_validate(leader[1]):
                doubtful.setdefault(leader[0], []).append((state, leader[1]))
            else:
                # With an unknown epoch the broker would serve any log; with the last known one it
                # says that there is a new epoch, which is then asked for what was read.
                epoch = state.valid_epoch if leader[1] == NO_EPOCH else leader[1]
                node_id = state.replica.choose(leader[0], now_ms)
                by_broker.setdefault((node_id, state.hot), []).append((state, epoch))
        for node_id, states in lookups.items():
            plan.lookups += lookups_of(node_id, states)
        for node_id, doubted in doubtful.items():
            plan.validations += validations_of(node_id, doubted)
        for (node_id, hot), wanted in by_broker.items():
            fetch = self._fetch(node_id, hot, wanted)
            if fetch is not None:
                plan.fetches.append(fetch)
        return plan

    def _fetch(
        self, node_id: int, hot: bool, wanted: list[tuple[PartitionState, int]]
    ) -> Fetch | None:
        config = self._config
        if (node_id, hot) in self._fetching:
            return None
        room = config.buffer_bytes - self.buffered_bytes - self._reserved_bytes
        max_bytes = min(config.fetch_max_bytes, len(wanted) * config.max_partition_bytes, room)
        if max_bytes < min(config.max_partition_bytes, config.buffer_bytes):
            return None
        self._fetching.add((node_id, hot))
        self.in_flight_requests += 1
        self._reserved_bytes += max_bytes
        partitions = []
        for state, epoch in wanted:
            state.in_flight = True
            # A partition that was asked for goes to the end: responses are filled in order.
            self._served[state] = self._served.pop(state)
            partitions.append(
                FetchPartition(*state.where, epoch, state.fetch_offset, config.max_partition_bytes)
            )
        max_wait_ms = 0 if hot else config.fetch_max_wait_ms
        asked = tuple(partitions)
        rack = config.client_rack or None
        request = FetchRequest(max_wait_ms, config.fetch_min_bytes, max_bytes, asked, rack)
        return Fetch(node_id, hot, request, tuple((state, state.version) for state, _ in wanted))

    # Answers

    def on_fetched(
        self, fetch: Fetch, results: tuple[FetchPartitionResult, ...], now_ms: int
    ) -> None:
        """A broker answered a fetch."""
        self._fetch_ended(fetch)
        by_partition = {(result.topic, result.partition): result for result in results}
        # A partition that got nothing because others filled the response is asked for again at
        # once. When no partition got anything, the long poll waits for data.
        found_some = any(len(result.records) for result in results)
        for (state, version), asked in zip(fetch.asked, fetch.request.partitions, strict=True):
            if state.version != version:
                continue
            state.in_flight = False
            result = by_partition.get(state.where)
            if result is None:
                self.back_off(state, now_ms)
            elif result.error_code:
                self._counters.partition_errors += 1
                error = broker_error(
                    result.error_code, result.error_message, about=str(state.where)
                )
                if state.replica.is_at(fetch.node_id):
                    state.replica.failed(now_ms)
                else:
                    self._refused(state, result, error, now_ms)
            else:
                self.recovered(state)
                state.replica.prefer(result.preferred_replica, now_ms)
                state.valid_epoch = asked.leader_epoch
                state.high_watermark = result.high_watermark
                if len(result.records):
                    self._buffer(state, kept(result.records), result.high_watermark)
                state.hot = found_some and state.fetch_offset < result.high_watermark

    def on_fetch_failed(self, fetch: Fetch, error: MillraceError, now_ms: int) -> None:
        """No answer will come to a fetch."""
        self._fetch_ended(fetch)
        for state, version in fetch.asked:
            if state.version == version:
                state.in_flight = False
                self.stale_topics.add(state.where.topic)
                if state.replica.is_at(fetch.node_id):
                    state.replica.failed(now_ms)
                # What is too large for this client will be so again.
                on_failed = self.failed if isinstance(error, MessageTooLarge) else self._retry
                on_failed(state, error, now_ms)

    def on_partition_denied(self, where: TopicPartition, error: MillraceError, now_ms: int) -> None:
        """The metadata has the topic, and no such partition."""
        state = self._states[where]
        if not state.in_flight and state.error is None:
            self.failed(state, error, now_ms)

    def on_topic_denied(self, topic: str, error: MillraceError, now_ms: int) -> None:
        """The metadata has an error in place of a topic."""
        for state in self._states.values():
            if state.where.topic == topic and not state.in_flight and state.error is None:
                self.failed(state, error, now_ms)

    def _refused(
        self, state: PartitionState, result: FetchPartitionResult, error: BrokerError, now_ms: int
    ) -> None:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            # Unlike a produced batch, corruption on a disk does not pass with a retry. The broker's
            # message names the end of the corrupt range.
            self.raise_to_user(state, error)
            return
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self.failed(state, error, now_ms)
            return
        if state.position != state.fetch_offset:
            # Records before it are not consumed yet; the broker will refuse it again then.
            self.back_off(state, now_ms)
            return
        valid = f"the log holds [{result.log_start_offset}, {result.high_watermark})"
        sentence = f"{state.where}: offset {state.fetch_offset} is out of range, {valid}"
        policy = self.out_of_range_policy
        if policy == "error":
            advice = "seek to an offset in it, or set on_out_of_range"
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            self.raise_to_user(state, OffsetOutOfRange(f"{sentence}: {advice}", code=code))
            return
        self.resets.append(OffsetReset(state.where, state.fetch_offset, f"{sentence}: {policy}"))
        self.reset(state, EARLIEST if policy == "earliest" else LATEST)

    def failed(self, state: PartitionState, error: MillraceError, now_ms: int) -> None:
        """Tries again later, or has the error raised once the records before it are consumed."""
        if isinstance(error, BrokerError) and error.refresh_metadata:
            self.stale_topics.add(state.where.topic)
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            state.denials += 1
        # An offline partition returns when its broker's disk does: the others go on meanwhile.
        passes = error.retriable or isinstance(error, StorageFailed)
        if passes and state.denials < DENIALS_MAX:
            self._retry(state, error, now_ms)
            return
        state.denials = 0
        self.raise_to_user(state, error)

    def raise_to_user(self, state: PartitionState, error: MillraceError) -> None:
        """Has the error raised once the records before it are consumed."""
        state.error = error
        self._note_ready(state)

    def _retry(self, state: PartitionState, error: MillraceError, now_ms: int) -> None:
        """Tries again later, and says why, once for as long as it stays the same."""
        if str(error) != str(state.last_error):
            self.failures.append(error)
        state.last_error = error
        self.back_off(state, now_ms)

    def recovered(self, state: PartitionState) -> None:
        state.attempts = state.denials = 0
        state.last_error = None

    def _buffer(self, state: PartitionState, data: bytes | memoryview, high_watermark: int) -> None:
        """Takes the whole batches of an answer, as far as their offsets can be true."""
        end, next_offset, is_broken = whole_batches(data, state.fetch_offset, high_watermark)
        if end:
            whole = data if end == len(data) else data[:end]
            state.epochs.trim_to(state.position or 0)
            state.epochs.note(whole, from_offset=state.fetch_offset, leader_epoch=state.valid_epoch)
            self._counters.on_batches(next_offset - state.fetch_offset, end)
            state.slices.append(Slice(whole, state.fetch_offset, next_offset))
            state.fetch_offset = next_offset
            state.buffered_bytes += len(whole)
            self.buffered_bytes += len(whole)
        if is_broken or not end:
            state.error = CorruptMessage(
                f"{state.where}: offset {next_offset} is next and the high watermark is "
                f"{high_watermark}; the broker's answer goes on with {len(data) - end} bytes that "
                "are no whole batch of that offset. The position has not moved",
                code=ErrorCode.CORRUPT_MESSAGE,
            )
        self._note_ready(state)

    def _note_ready(self, state: PartitionState) -> None:
        if not (state.paused or state.holds) and (state.slices or state.error is not None):
            self._ready[state] = None

    def _drop(self, state: PartitionState) -> None:
        """Forgets the read-ahead, and ignores responses to requests in flight."""
        state.version += 1
        state.in_flight = False
        state.hot = True
        self.buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0
        state.slices.clear()
        state.epochs = ReadEpochs()
        state.error = None
        state.retry_at_ms = 0
        self._ready.pop(state, None)

    def back_off(self, state: PartitionState, now_ms: int) -> None:
        config = self._config
        state.retry_at_ms = now_ms + backoff_ms(
            state.attempts,
            first_ms=config.retry_backoff_ms,
            max_ms=config.retry_backoff_max_ms,
            rng=self._rng,
        )
        state.attempts += 1

    def _fetch_ended(self, fetch: Fetch) -> None:
        self.in_flight_requests -= 1
        self._fetching.discard((fetch.node_id, fetch.hot))
        self._reserved_bytes -= fetch.request.max_bytes
