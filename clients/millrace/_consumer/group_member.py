"""A consumer's membership of its group: the shell that carries out the effects of `membership`.

Owns the tasks of calls and hand-overs, and the timer. `membership` and `poll_deadline` decide;
`hand_over` has the steps of a hand-over, and `topic_watch` the topics. Joins and syncs wait on a
connection of their own, so that heartbeats, commits and fetches never wait behind one.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import LANE_CALLS, Cluster
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.fetcher import Fetcher
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.hand_over import Callbacks, HandOvers
from millrace._consumer.partition_state import Hold
from millrace._consumer.positions import Positions
from millrace._consumer.topic_watch import TopicWatch
from millrace._group.commits import TRY_MS_MIN, CommitIdentity
from millrace._group.coordinator import LANE_JOIN, UNREACHABLE, Coordinator
from millrace._group.effects import (
    Assign,
    Effect,
    Emit,
    Fail,
    Heartbeat,
    Join,
    Leave,
    Left,
    RefreshMetadata,
    Revoke,
    Sync,
)
from millrace._group.member_identity import MemberConfig
from millrace._group.member_states import MemberState
from millrace._group.membership import Membership
from millrace._group.poll_deadline import PollAlert, PollDeadline
from millrace.config import ConsumerConfig
from millrace.errors import MemberFenced, MillraceError, again
from millrace.events import EventFeed, EventKind, GroupHealth
from millrace.records import TopicPartition
from millrace_protocol.messages.group_membership import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from millrace_protocol.schema import Message

M = TypeVar("M", bound=Message)
CLOSE_TIMEOUT_MS = 10_000
"""Bound of leaving a group; after that the session timeout ends the membership."""
_JOIN_SLACK_MS = 5_000
"""A join is answered when the rebalance timeout is over, and not to the millisecond."""


class Group:
    """One consumer in one group, while `run` runs."""

    def __init__(
        self,
        member: MemberConfig,
        coordinator: Coordinator,
        cluster: Cluster,
        positions: Positions,
        reading: FetchBuffer,
        offsets: GroupOffsets,
        config: ConsumerConfig,
        *,
        callbacks: Callbacks,
        counters: ConsumerCounters,
        feed: EventFeed,
        fetcher: Fetcher,
    ) -> None:
        self._member = member
        self._coordinator = coordinator
        self._cluster = cluster
        self._positions = positions
        self._fetch_buffer = reading
        self._config = config
        self._hand_overs = HandOvers(
            positions, reading, offsets, config, callbacks=callbacks, feed=feed
        )
        self._counters = counters
        self._feed = feed
        self._fetcher = fetcher
        self._membership = Membership(member, rng=cluster.rng)
        self._poll_deadline = PollDeadline(config.max_poll_interval_ms)
        self._topic_watch = TopicWatch(cluster, positions, config, feed=feed)
        self._is_suspended = False
        self._hand_over: asyncio.Task[None] | None = None
        self._effects: deque[Effect] = deque()
        self._wake = asyncio.Event()
        self._left = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    # Subscription

    @property
    def error(self) -> MillraceError | None:
        """Why the consumer cannot be a member any more."""
        return self._membership.error

    @property
    def denied(self) -> MillraceError | None:
        """Why the consumer cannot see a topic that it shares, until it can."""
        return self._topic_watch.denied

    @property
    def in_callback(self) -> bool:
        """Whether the caller is a callback of a rebalance."""
        return self._hand_overs.in_callback

    def subscription(self) -> frozenset[str]:
        """The topics that are shared, those of a pattern as far as they are known."""
        return self._topic_watch.topics

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None = None) -> None:
        """Shares these topics from now on, or all whose names match a pattern, also later ones."""
        self._is_suspended = False
        self._topic_watch.subscribe(topics, pattern)
        if pattern is None:
            self._share()
            self._hand_overs.asked.set()

    async def leave(self) -> None:
        """Leaves for good: commits processed records, calls the user, and sends LeaveGroup."""
        self._topic_watch.pattern = None
        self._left.clear()
        self._do(self._membership.leave("the consumer was closed", monotonic_ms()))
        self._hand_overs.asked.set()
        await self._left.wait()

    def abandon_leave(self) -> None:
        """Ends the wait of `leave`: the tasks have failed, so the group is not told."""
        self._left.set()

    # Reading

    def asked(self, *, one_by_one: bool = False) -> None:
        """The user asks for more."""
        self._fetch_buffer.asked(one_by_one=one_by_one)
        self._hand_overs.asked.set()
        if self._poll_deadline.is_overdue:
            self._resume()
        self._poll_deadline.on_asked()

    def handed(self) -> None:
        """The user was handed records."""
        self._poll_deadline.on_handed(self._fetch_buffer.progress, monotonic_ms())
        due_ms = self._poll_deadline.deadline_ms()
        if due_ms is not None and (self._timer_ms is None or due_ms < self._timer_ms):
            self._wake.set()

    def extend(self, extra_ms: int) -> None:
        """The user is busy for that much longer, from now on."""
        if self._poll_deadline.is_overdue:
            self._resume()
        self._poll_deadline.extend(extra_ms, monotonic_ms())
        self._wake.set()

    def _resume(self) -> None:
        for where in self._positions.assigned():
            self._positions.release(self._positions[where], Hold.OVERDUE)
        self._fetcher.wake()
        if self._is_suspended:
            self._is_suspended = False
            self._share()

    def _share(self) -> None:
        """Joins with the topics of the subscription, unless the consumer is to stay out for now."""
        if not self._is_suspended:
            self._do(self._membership.subscribe(self._topic_watch.topics, monotonic_ms()))

    # The identity of commits

    @property
    def is_out(self) -> bool:
        """Whether it is no member and wants to be none: it commits without membership then."""
        is_member = self._membership.state not in (MemberState.UNJOINED, MemberState.FAILED)
        return not is_member and not self._topic_watch.topics and self._topic_watch.pattern is None

    def commit_identity(self) -> CommitIdentity:
        if self.is_out:
            return CommitIdentity()
        identity = self._membership.identity
        return CommitIdentity(identity.generation, identity.member_id, self._member.instance_id)

    def may_commit(self, where: TopicPartition) -> bool:
        return self.is_out or where in self._membership.held

    def on_fenced(self, generation: int, error: MemberFenced) -> None:
        self._do(self._membership.on_fenced(generation, error, monotonic_ms()))

    # Observing

    def on_metadata(self) -> None:
        """The cluster has told of topics."""
        self._do(
            self._membership.on_counts(self._cluster.metadata.partition_counts(), monotonic_ms())
        )
        if self.denied is not None:
            # Callers that wait for records get the error.
            self._fetcher.data.set()

    def health(self) -> GroupHealth:
        """How the membership is doing, now."""
        now_ms = monotonic_ms()
        member, heard_ms = self._membership, self._membership.last_heartbeat_ms
        return GroupHealth(
            group=self._member.group,
            member_id=member.identity.member_id,
            generation=member.identity.generation,
            state=str(member.state),
            last_heartbeat_ms=None if heard_ms is None else now_ms - heard_ms,
            processing_ms=self._poll_deadline.busy_ms(now_ms),
            processing_left_ms=self._poll_deadline.left_ms(now_ms),
            assignment=tuple(sorted(member.held)),
            callback_error=self._hand_overs.callback_error,
        )

    # The task

    def start(self, tasks: BackgroundTasks) -> None:
        """Begins to carry the membership out, until `tasks` end."""
        tasks.start(self._run(tasks), name="millrace-group", lasting=True)
        watching = self._topic_watch.run(
            lambda: self._membership.watched, on_looked=self.on_metadata, on_matching=self._share
        )
        tasks.start(watching, name="millrace-group-topics", lasting=True)

    async def _run(self, tasks: BackgroundTasks) -> None:
        try:
            while True:
                self._wake.clear()
                now_ms = monotonic_ms()
                self._effects.extend(self._membership.on_deadline(now_ms))
                self._check_poll_deadline(now_ms)
                while self._effects:
                    self._carry_out(self._effects.popleft(), tasks)
                self._set_timer()
                await self._wake.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _do(self, effects: Iterable[Effect]) -> None:
        """Has the task carry effects out."""
        self._effects.extend(effects)
        self._wake.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dues = (self._membership.deadline_ms(), self._poll_deadline.deadline_ms())
        self._timer_ms = min((due for due in dues if due is not None), default=None)
        if self._timer_ms is not None:
            delay_ms = max(0, self._timer_ms - monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._wake.set)

    def _carry_out(self, effect: Effect, tasks: BackgroundTasks) -> None:
        if isinstance(effect, Emit):
            self._feed.emit(effect.kind, effect.sentence, effect.error)
        elif isinstance(effect, Left):
            self._left.set()
        elif isinstance(effect, Fail):
            self._fail(effect, tasks)
        elif isinstance(effect, Revoke):
            self._hand_over = tasks.start(self._let_go(effect), name="millrace-revoke")
        elif isinstance(effect, Assign):
            self._hand_over = tasks.start(self._take_over(effect), name="millrace-assign")
        elif isinstance(effect, RefreshMetadata):
            tasks.start(self._learn(effect), name="millrace-group-learn")
        else:
            tasks.start(self._call(effect), name=f"millrace-{type(effect).__name__.lower()}")

    async def _call(self, effect: Join | Sync | Heartbeat | Leave) -> None:
        member, config = self._membership, self._config
        waits_ms = config.rebalance_timeout_ms + _JOIN_SLACK_MS
        soon_ms = min(config.request_timeout_ms, max(TRY_MS_MIN, config.session_timeout_ms))
        try:
            if isinstance(effect, Join):
                joined = await self._ask(effect, JoinGroupResponse, waits_ms, LANE_JOIN)
                effects = member.on_joined(effect, joined, monotonic_ms())
            elif isinstance(effect, Sync):
                synced = await self._ask(effect, SyncGroupResponse, waits_ms, LANE_JOIN)
                self._counters.rebalances += 1
                effects = member.on_synced(effect, synced, monotonic_ms())
            elif isinstance(effect, Heartbeat):
                await self._ask(effect, HeartbeatResponse, soon_ms)
                effects = member.on_heard(effect, monotonic_ms())
            else:
                await self._ask(effect, LeaveGroupResponse, soon_ms)
                effects = member.on_left(effect, monotonic_ms())
        except MillraceError as error:
            if isinstance(error, UNREACHABLE):
                self._fetcher.note(error)
            effects = member.on_failed(effect, again(error), monotonic_ms())
        self._do(effects)

    async def _ask(
        self,
        effect: Join | Sync | Heartbeat | Leave,
        answer: type[M],
        timeout_ms: int,
        lane: str = LANE_CALLS,
    ) -> M:
        return await self._coordinator.call(
            effect.request, answer, timeout_ms=timeout_ms, lane=lane
        )

    async def _learn(self, learn: RefreshMetadata) -> None:
        member = self._membership
        try:
            # An assignment without a topic that was just created would be taken for a whole one.
            if await self._cluster.look_for_topics(learn.topics):
                self._topic_watch.wake()
            assigned = None
            if learn.with_assignments:
                assigned = await self._coordinator.all_assigned(self._config.request_timeout_ms)
        except MillraceError as error:
            self._do(member.on_failed(learn, again(error), monotonic_ms()))
        else:
            counts = self._cluster.metadata.partition_counts()
            self._do(member.on_refreshed(learn, counts, monotonic_ms(), assigned=assigned))

    # Handing over

    async def _take_over(self, assign: Assign) -> None:
        await self._hand_overs.take_over(assign)
        self._do(self._membership.on_handed_over(assign, monotonic_ms()))

    async def _let_go(self, revoke: Revoke) -> None:
        await self._hand_overs.let_go(revoke, is_worth_waiting=self._is_expected_to_ask)
        self._do(self._membership.on_handed_over(revoke, monotonic_ms()))

    def _is_expected_to_ask(self) -> bool:
        """Whether the user goes on reading: not where it wants out itself, or takes too long."""
        return bool(self._membership.topics) and not self._poll_deadline.is_overdue

    def _fail(self, fail: Fail, tasks: BackgroundTasks) -> None:
        """Ends a membership for good; `error` has the reason."""
        if self._hand_over is not None:
            self._hand_over.cancel()
        self._fetch_buffer.give_back()
        self._positions.remove(self._positions.assigned())
        self._feed.emit(EventKind.LOST, f"out of group {self._member.group!r}: {fail.error}")
        lost = sorted(fail.lost)
        if lost:
            tasks.start(self._hand_overs.tell_lost(lost), name="millrace-lost")
        self._left.set()
        # Callers that wait for records get the error.
        self._fetcher.data.set()

    # Watching

    def _check_poll_deadline(self, now_ms: int) -> None:
        pace = self._poll_deadline.on_deadline(self._fetch_buffer.progress, now_ms)
        if pace is None:
            return
        busy_ms = self._poll_deadline.busy_ms(now_ms)
        left_ms = self._poll_deadline.left_ms(now_ms)
        if pace is PollAlert.SLOW:
            self._feed.emit(
                EventKind.PROCESSING_SLOW,
                f"records are in hand for {busy_ms} ms; in {left_ms} ms the consumer will "
                f"{self._config.on_overdue}; extend_processing gives more time",
            )
            return
        self._feed.emit(
            EventKind.PROCESSING_OVERDUE,
            f"records are in hand for {busy_ms} ms: the consumer "
            + ("leaves the group" if self._config.on_overdue == "leave" else "pauses")
            + " until the next are asked for",
        )
        # A revocation does not wait for the user any longer.
        self._hand_overs.asked.set()
        if self._config.on_overdue == "leave":
            self._is_suspended = True
            self._do(self._membership.leave("processing took too long", now_ms))
            return
        for where in self._positions.assigned():
            self._positions.hold(self._positions[where], Hold.OVERDUE)
