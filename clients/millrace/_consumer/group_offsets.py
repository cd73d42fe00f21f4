"""The offsets of a group: what its consumer commits, and where it begins.

Owns the step from positions to commits and back: which of them are done with, which are committed
already, the interval of automatic commits, and the start of a partition that is taken over. Whether
the partitions came from a group or from the user is `commits.CommitMember`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from millrace._background_tasks import BackgroundTasks
from millrace._cluster.cluster import Cluster
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.partition_state import Hold, PartitionState
from millrace._consumer.positions import Positions
from millrace._consumer.read_epochs import NO_EPOCH, ReadEpochs
from millrace._group.commits import Commits
from millrace.config import ConsumerConfig
from millrace.errors import MillraceError, again
from millrace.events import EventFeed, EventKind
from millrace.groups import CommitOutcome, CommittedOffset
from millrace.records import TopicPartition
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST

_Versions = dict[PartitionState, int]
"""Partitions that are looked up. A position that the user changes has another version, and a
partition that was given up and is read again has another state."""
_RESETS = {"earliest": EARLIEST, "latest": LATEST, "error": None}


def _epoch_before(positions: Positions, where: TopicPartition, offset: int) -> int:
    """The leader epoch of the last record before an offset that is committed (KIP-320)."""
    return positions[where].epochs.before(offset) if where in positions else NO_EPOCH


class GroupOffsets:
    """The offsets of one consumer's partitions in its group."""

    def __init__(
        self,
        commits: Commits,
        cluster: Cluster,
        positions: Positions,
        reading: FetchBuffer,
        config: ConsumerConfig,
        *,
        start_at: int,
        counters: ConsumerCounters,
        feed: EventFeed,
        wake_fetcher: Callable[[], None],
    ) -> None:
        self.commits = commits
        commits.epoch_before = partial(_epoch_before, positions)
        self._cluster = cluster
        self._positions = positions
        self._fetch_buffer = reading
        self._config = config
        self._counters = counters
        self._feed = feed
        self._wake_fetcher = wake_fetcher
        self._looking_up: set[PartitionState] = set()
        self._looked_up = asyncio.Event()
        self._to_look_up: list[_Versions] = []
        self._refused: _Versions = {}
        """Those whose committed offsets the coordinator does not tell."""
        self._refusals = 0
        self._wake = asyncio.Event()
        policy = config.auto_offset_reset
        self._reset = start_at if policy is None else _RESETS[policy]
        self._committed: dict[TopicPartition, int] = {}
        self._known_counts: dict[str, int] = {}

    # Where to begin

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Reads exactly these, without membership; new ones from the group's committed offsets."""
        new = [where for where in partitions if where not in self._positions]
        self._positions.assign([w for w in partitions if w in self._positions], None)
        versions = self._add(new)
        if new:
            self._to_look_up.append(versions)
            self._wake.set()

    async def begin(self, partitions: list[TopicPartition]) -> None:
        """Adds partitions at their committed offsets, held back until `release`.

        Where the group has committed nothing: where the consumer was told to begin.
        """
        await self._look_up(self._add(partitions))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on the records of partitions that were begun with are read."""
        for where in partitions:
            if where in self._positions:
                self._positions.release(self._positions[where], Hold.ASSIGNED)
        self._wake_fetcher()

    def is_looking_up(self, where: TopicPartition) -> bool:
        """Whether the committed offset of a partition is not known yet."""
        return where in self._positions and self._positions[where] in self._looking_up

    async def looked_up(self) -> None:
        """Returns when something was found out."""
        await self._looked_up.wait()

    def _add(self, partitions: list[TopicPartition]) -> _Versions:
        for where in partitions:
            self._positions.add([where], self._reset_of(where))
            self._positions.hold(self._positions[where], Hold.ASSIGNED)
        added = [self._positions[where] for where in partitions]
        self._looking_up.update(added)
        return {state: state.version for state in added}

    async def _look_up(self, versions: _Versions) -> None:
        """Asks for the committed offsets until the coordinator answers.

        An error that no retry helps, such as a right that is missing, is raised to the user in
        place of the first record, each time it asks for one, until the user or a later look-up says
        where to begin. A partition that began elsewhere would skip or repeat records.
        """
        to_ask = [versions]
        refusals = 0
        while to_ask:
            asked = to_ask.pop()
            found, failure = await self._ask(asked)
            topics = sorted({state.where.topic for state in asked})
            if failure is not None and len(topics) > 1:
                # The error of one topic says nothing of the others.
                to_ask += [{s: v for s, v in asked.items() if s.where.topic == t} for t in topics]
                continue
            refusals += failure is not None
            for state, version in asked.items():
                self._looking_up.discard(state)
                is_read = state.where in self._positions and self._positions[state.where] is state
                # Else it is not read any more, or begins where the user has said.
                if is_read and state.version == version and state.position is None:
                    self._begin_at(state, found.get(state.where), failure)
            self._looked_up.set()
            self._looked_up = asyncio.Event()
        self._refusals = self._refusals + 1 if refusals else 0

    async def _ask(
        self, asked: _Versions
    ) -> tuple[dict[TopicPartition, CommittedOffset | None], MillraceError | None]:
        """What the group has committed, or why no retry helps."""
        partitions = [state.where for state in asked]
        attempt = 0
        while True:
            try:
                found = await self.commits.fetch(
                    partitions, timeout_ms=self._config.request_timeout_ms
                )
                return found, None
            except MillraceError as error:
                if not self._refusals:
                    self._say_failed("the committed offsets of the group cannot be read", error)
                if not error.retriable:
                    return {}, again(error)
            await self._cluster.pause(attempt)
            attempt += 1

    def _begin_at(
        self,
        state: PartitionState,
        committed: CommittedOffset | None,
        failure: MillraceError | None,
    ) -> None:
        if failure is not None:
            state.no_start, state.reset = failure, None
            self._refused[state] = state.version
            self._wake.set()
            return
        was_refused, state.no_start = state.no_start is not None, None
        if committed is not None:
            self._positions.seek(state, committed.offset)
            state.epochs = ReadEpochs.committed(committed.leader_epoch, committed.offset)
            self._committed[state.where] = committed.offset
        elif was_refused:
            reset = self._reset_of(state.where)
            if reset is not None:
                self._positions.reset(state, reset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Other members have these partitions, and commit for them."""
        for where in partitions:
            self._committed.pop(where, None)

    def _reset_of(self, where: TopicPartition) -> int | None:
        """A partition that was added while the consumer runs is read from its beginning: what was
        written before it was noticed is new all the same."""
        count = self._cluster.metadata.partition_count(where.topic) or 0
        known = self._known_counts.setdefault(where.topic, count)
        return EARLIEST if self._reset == LATEST and where.partition >= known else self._reset

    # Offsets to commit

    def processed(
        self, states: Iterable[PartitionState] | None = None
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The processed offsets that are not committed yet."""
        offsets = {}
        for state in self._kept() if states is None else states:
            offset = self._fetch_buffer.processed(state)
            if offset is not None and offset != self._committed.get(state.where):
                offsets[state.where] = (offset, "")
        return offsets

    def handed_out(self) -> dict[TopicPartition, tuple[int, str]]:
        """The position of every partition, up to the record."""
        offsets = {}
        for where in self._positions.assigned():
            state = self._positions[where]
            offset = self._fetch_buffer.position(state)
            if offset is not None:
                offsets[where] = (offset, "")
        return offsets

    async def commit_for_user(
        self, offsets: Mapping[TopicPartition, tuple[int, str]], *, timeout_ms: int
    ) -> dict[TopicPartition, CommitOutcome]:
        """As `commit`. The user is done with what it commits, so that no automatic commit that
        knows of less takes the group back.
        """
        for where, (offset, _) in offsets.items():
            if where in self._positions:
                self._fetch_buffer.done(self._positions[where], offset)
        return await self.commit(offsets, timeout_ms=timeout_ms)

    async def commit(
        self, offsets: Mapping[TopicPartition, tuple[int, str]], *, timeout_ms: int
    ) -> dict[TopicPartition, CommitOutcome]:
        """Commits, and emits an event for each failure."""
        if not offsets:
            return {}
        self._counters.commits += 1
        outcomes = await self.commits.commit(offsets, timeout_ms=timeout_ms)
        failures: dict[str, tuple[MillraceError, list[TopicPartition]]] = {}
        for where, outcome in outcomes.items():
            if outcome.error is None:
                self._committed[where] = outcome.offset
            else:
                same = failures.setdefault(str(outcome.error), (outcome.error, []))
                same[1].append(where)
        self._counters.failed_commits += bool(failures)
        for error, which in failures.values():
            self._say_failed(f"{len(which)} of {len(offsets)} commits failed", error)
        return outcomes

    # The task

    def start(self, tasks: BackgroundTasks) -> None:
        """Begins to look up and to commit, until `tasks` end."""
        tasks.start(self._run(), name="millrace-offsets", lasting=True)
        if self._config.auto_commit:
            tasks.start(self._commit_regularly(), name="millrace-auto-commit", lasting=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            while self._to_look_up:
                versions = self._to_look_up.pop(0)
                await self._look_up(versions)
                for state in versions:
                    self._positions.release(state, Hold.ASSIGNED)
                self._wake_fetcher()
            pause_s = self._cluster.backoff_ms(self._refusals) / 1000
            try:
                async with asyncio.timeout(pause_s if self._refused else None):
                    await self._wake.wait()
            except TimeoutError:
                refused, self._refused = self._refused, {}
                await self._look_up(refused)
                self._wake_fetcher()

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            await self.commit(self.processed(), timeout_ms=self._config.request_timeout_ms)

    def _kept(self) -> list[PartitionState]:
        """Every partition, but for those that are being given up, which is done elsewhere."""
        states = (self._positions[where] for where in self._positions.assigned())
        return [state for state in states if not state.holds & Hold.REVOKED]

    def _say_failed(self, what: str, error: MillraceError) -> None:
        self._feed.emit(EventKind.COMMIT_FAILED, f"{what}: {error}", again(error))
