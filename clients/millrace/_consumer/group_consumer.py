"""The part of a consumer that its group adds: subscriptions and commits.

Owns these calls and the parts of a consumer that only groups need. Rebalances are `group_member`'s,
the requests of commits `commits`'.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from millrace._background_tasks import BackgroundTasks
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.group_member import CLOSE_TIMEOUT_MS, Group
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.hand_over import Callbacks
from millrace._consumer.seek import Partition, SeekableConsumer, Start, timestamp_of
from millrace._group.commits import Commits
from millrace._group.coordinator import Coordinator
from millrace._group.member_identity import MemberConfig
from millrace.errors import ConfigError, InCallback
from millrace.events import EventFeed, EventKind, State
from millrace.groups import CommitOutcome, CommittedOffset
from millrace.records import TopicPartition

P = TypeVar("P", bound=tuple[str, int])


class GroupConsumer(SeekableConsumer):
    """A consumer with the calls of a group member."""

    _topics: tuple[str, ...]
    _start_at: int
    _counters: ConsumerCounters
    _feed: EventFeed
    _state: State
    _tasks: BackgroundTasks | None
    _group: Group | None
    _commits: Commits | None
    _shares: bool

    def _check_alive(self) -> None:
        """Raises unless the consumer runs."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raises `Closed` once the consumer closes."""
        raise NotImplementedError

    # Subscription and assignment

    def assign(self, partitions: Iterable[Partition], *, start: Start | None = None) -> None:
        """Reads exactly these partitions from now on; those already read continue.

        New ones begin at `start`. Without it they begin at the group's committed offset, or at the
        consumer's own `start` where there is no group.
        """
        self.owner.check()
        wanted = [TopicPartition(*where) for where in partitions]
        if self._shares:
            raise ConfigError("assign: this consumer shares topics with a group; unsubscribe first")
        self._fetch_buffer.give_back()
        self._topics = ()
        if self._group_offsets is not None and start is None:
            self._group_offsets.assign(wanted)
        else:
            reset = self._start_at if start is None else timestamp_of(start)
            self._positions.assign(wanted, reset)
        self._feed.emit(
            EventKind.PARTITIONS_CHANGED, f"reads {', '.join(map(str, wanted)) or 'nothing'}"
        )
        self._fetcher.wake()

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Shares these topics with the group from now on, instead of those before.

        A pattern stands for all topics whose whole name it matches, also those that are created
        later, which are noticed within `metadata_max_age_ms`. Takes effect with the next rebalance.
        """
        self._check_open()
        self.owner.check()
        if self._group is None:
            raise ConfigError("subscribe: topics are shared in a group; give the consumer a group")
        if len(self._positions) and not self._shares:
            raise ConfigError("subscribe: partitions are assigned by hand; assign([]) first")
        if isinstance(topics, str):
            raise ConfigError(f"subscribe: topics are a list or a pattern, not {topics!r}")
        pattern = topics if isinstance(topics, re.Pattern) else None
        names = () if isinstance(topics, re.Pattern) else tuple(topics)
        check_topics(names)
        self._topics = names
        self._shares = bool(names) or pattern is not None
        self._group.subscribe(frozenset(names), pattern)

    def unsubscribe(self) -> None:
        """Stops reading. In a group: commits processed records, and leaves the group."""
        if self._group is None or not self._shares:
            self.assign([])
            return
        self._topics = ()
        self._shares = False
        self._group.subscribe(frozenset())

    def subscription(self) -> list[str]:
        """The topics that are read, sorted; those of a pattern as far as they are known."""
        return sorted(self._topics if self._group is None else self._group.subscription())

    # Commits

    async def commit(
        self, offsets: Mapping[P, int | tuple[int, str]] | None = None
    ) -> dict[TopicPartition, CommitOutcome]:
        """Commits the position of every partition, or the offsets given.

        An offset is that of the next record to process, alone or with a text that is kept beside
        it. Returns an outcome for each partition and raises nothing, also during a rebalance.
        Errors that may pass are retried for `request_timeout_ms`. A commit that got no response
        (`ConnectionLost`, `RequestTimedOut`) may take effect late, even after the next one, as in
        Kafka: records are then read again by the next owner.
        """
        group_offsets = self._check_group("commit")
        if offsets is None:
            wanted = group_offsets.handed_out()
        else:
            wanted = {
                TopicPartition(*where): (to, "") if isinstance(to, int) else to
                for where, to in offsets.items()
            }
        return await group_offsets.commit_for_user(
            wanted, timeout_ms=self._config.request_timeout_ms
        )

    def handed_out(self) -> dict[TopicPartition, int]:
        """What `commit` commits by itself: the offset of the next record of each partition."""
        return {
            where: offset for where, (offset, _) in self._check_group("commit").handed_out().items()
        }

    async def committed(
        self, *partitions: Partition
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's committed offset of each partition named, or of all that are read.

        None where the group has committed none.
        """
        group_offsets = self._check_group("committed")
        named = [TopicPartition(*where) for where in partitions] or self.assignment()
        return await group_offsets.commits.fetch(named, timeout_ms=self._config.request_timeout_ms)

    def extend_processing(self, extra_ms: int) -> None:
        """Gives the processing of the records in hand `extra_ms` more, from now on.

        Moves the processing deadline of `max_poll_interval_ms`; undoes it where it has passed.
        """
        if extra_ms < 1:
            raise ValueError(f"extra_ms: must be 1 or more, not {extra_ms}")
        self._check_group("extend_processing")
        if self._group is not None:
            self._group.extend(extra_ms)

    # Inside

    def _join_in(self, member: MemberConfig, callbacks: Callbacks) -> None:
        """Makes the parts that a consumer of a group has more than another."""
        coordinator = Coordinator(self._cluster, member.group)
        self._commits = Commits(coordinator, self._cluster)
        self._group_offsets = GroupOffsets(
            self._commits,
            self._cluster,
            self._positions,
            self._fetch_buffer,
            self._config,
            start_at=self._start_at,
            counters=self._counters,
            feed=self._feed,
            wake_fetcher=self._fetcher.wake,
        )
        self._group = Group(
            member,
            coordinator,
            self._cluster,
            self._positions,
            self._fetch_buffer,
            self._group_offsets,
            self._config,
            callbacks=callbacks,
            counters=self._counters,
            feed=self._feed,
            fetcher=self._fetcher,
        )
        if self._topics:
            self.subscribe(self._topics)

    async def _leave(self, *, all_is_done: bool) -> None:
        """Leaves the group. Returns early when a task of the consumer fails meanwhile."""
        if self._group is None or self._group_offsets is None or self._tasks is None:
            return
        if all_is_done:
            self._fetch_buffer.asked()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                if not self._group.is_out:
                    await self._group.leave()
                elif self._config.auto_commit:
                    await self._group_offsets.commit(
                        self._group_offsets.processed(), timeout_ms=CLOSE_TIMEOUT_MS
                    )

    def _check_group(self, call: str) -> GroupOffsets:
        """The offsets of the group. Also while the consumer closes, for its callbacks."""
        if self._group_offsets is None:
            raise ConfigError(f"{call}: offsets are a group's; give the consumer a group")
        if self._state is not State.CLOSING:
            self._check_alive()
        return self._group_offsets

    def _check_outside(self, call: str) -> None:
        if self._group is not None and self._group.in_callback:
            raise InCallback(
                f"{call} waits for the rebalance that this callback is a part of; "
                "return from it first"
            )


def check_topics(topics: Sequence[str]) -> None:
    """Raises `ConfigError` for an invalid topic name."""
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"topics: {topic!r} is not a topic name")
