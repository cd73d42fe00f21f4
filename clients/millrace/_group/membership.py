"""A member of a consumer group: what it does next, given what it is told.

Owns the member's id and generation, what it holds, when it joins, syncs, heartbeats and leaves, and
what it gives up on the way, eagerly or cooperatively. Pure: events come in with `now_ms` of one
monotonic clock, effects go out (`effects`), and the outcome of an effect is an event too.

    `held` shrinks in `on_handed_over` alone, after the user has let go, or when all is over
    a generation that was fenced is never spoken for again

Source: the client's side of Kafka's classic group protocol; KIP-345 (static members), KIP-394 (ids
are given first), KIP-429 (cooperative), KIP-814 (a static leader that comes back).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millrace._backoff import Backoff, Rng
from millrace._group import member_events
from millrace._group.effects import (
    Assign,
    Call,
    Effect,
    Fail,
    HandOver,
    Heartbeat,
    Join,
    Leave,
    Left,
    Partitions,
    RefreshMetadata,
    Revoke,
    Sync,
)
from millrace._group.heartbeats import Heartbeats
from millrace._group.member_identity import NO_MEMBER, MemberConfig, MemberIdentity
from millrace._group.member_states import IN_GENERATION, Lifecycle, MemberState, Step
from millrace._group.pending_call import PendingCall
from millrace._group.placement import Leadership, place
from millrace.assignors import RebalanceProtocol, decode_assigned, rebalance_protocol
from millrace.errors import (
    IllegalGeneration,
    InconsistentProtocol,
    InstanceFenced,
    MemberFenced,
    MillraceError,
    ProtocolViolation,
    RebalanceInProgress,
    again,
)
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import NO_GENERATION
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.messages.group_membership import (
    JoinGroupResponse,
    MemberAssignment,
    SyncGroupResponse,
)

LOOP_STALL_MS = 1_000
"""A timer that is so late means that the event loop was blocked: heartbeats come late too."""
_NOTHING: Partitions = frozenset()
_NO_TOPICS: frozenset[str] = frozenset()


class Membership:
    """One consumer's membership, over all generations; see `member_states` for its life.

    The shell calls `on_deadline` at `deadline_ms`, and every method's effects are carried out in
    order. At most one call and one hand-over are under way, and one heartbeat beside them.
    """

    def __init__(self, config: MemberConfig, *, rng: Rng) -> None:
        self.identity = MemberIdentity(config)
        self.held: Partitions = _NOTHING
        self.error: MillraceError | None = None
        self._config = config
        self._backoff = Backoff(
            first_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms, rng=rng
        )
        self._heartbeats = Heartbeats(
            interval_ms=config.heartbeat_interval_ms, session_timeout_ms=config.session_timeout_ms
        )
        self._calls = PendingCall()
        self._life = Lifecycle()
        self._is_eager = rebalance_protocol(config.assignors) is RebalanceProtocol.EAGER
        self._wanted: frozenset[str] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._leave_reason: str | None = None
        self._rejoin_reason: str | None = None
        self._fenced: MemberFenced | None = None
        # What is under way.
        self._handing_over: HandOver | None = None
        self._after: Step = Step.JOIN
        self._assigned: Partitions = _NOTHING
        self._before: Partitions = _NOTHING
        self._leadership: Leadership | None = None
        self._counts: Mapping[str, int] = {}
        self._began_ms = 0

    @property
    def state(self) -> MemberState:
        """Where the member is."""
        return self._life.state

    @property
    def last_heartbeat_ms(self) -> int | None:
        """When the group last answered; None before the first answer."""
        return self._heartbeats.answered_ms

    @property
    def topics(self) -> frozenset[str]:
        """What the member wants to read."""
        return self._wanted

    @property
    def watched(self) -> frozenset[str]:
        """The topics whose changes are this member's business."""
        led = _NO_TOPICS if self._leadership is None else self._leadership.topics
        return self._wanted | led

    # Wishes

    def subscribe(self, topics: frozenset[str], now_ms: int) -> list[Effect]:
        """Wants to share these topics from now on; none means not to be a member."""
        if not topics:
            return self.leave("it subscribes to nothing", now_ms)
        self._wanted = topics
        self._leave_reason = None
        if self.state is MemberState.UNJOINED:
            self._began_ms = now_ms
            return self._join("it subscribes")
        return self._settled(now_ms)

    def leave(self, reason: str, now_ms: int) -> list[Effect]:
        """Wants out until it subscribes again. Ends in `Left`, at once where it is not in."""
        self._wanted = frozenset()
        self._leave_reason = reason
        if self.state in (MemberState.UNJOINED, MemberState.FAILED):
            return [Left()]
        if self.state is MemberState.LEAVING or self._handing_over is not None:
            return []
        return self._go(now_ms)

    def on_counts(self, counts: Mapping[str, int], now_ms: int) -> list[Effect]:
        """How many partitions topics have, as far as known, 0 for none; changes are the leader's
        business.
        """
        self._counts = counts
        return self._settled(now_ms)

    def on_fenced(self, generation: int, error: MemberFenced, now_ms: int) -> list[Effect]:
        """A commit in `generation` was told that the group has gone on without this member."""
        if self.state is not MemberState.STABLE or generation != self.identity.generation:
            return []
        return self._fence(error, now_ms)

    # Outcomes

    def on_joined(self, join: Join, answer: JoinGroupResponse, now_ms: int) -> list[Effect]:
        """The group has a new generation, or the member an id."""
        if join is not self._calls.current:
            return []
        self._answered()
        self.identity.member_id = answer.member_id
        if self.state is MemberState.LEAVING:
            return self._leave_group(now_ms)
        if answer.generation < 0:
            return self._join("it has its id")
        self.identity.generation = answer.generation
        self._heard(now_ms)
        assignor = self._config.assignor(answer.protocol)
        if assignor is None:
            return self._fail(
                InconsistentProtocol(
                    f"the coordinator chose {answer.protocol!r}, which this member did not offer",
                    code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                )
            )
        self.identity.protocol = assignor.name
        self._leadership = None
        if answer.leader != answer.member_id:
            return self._sync(())
        try:
            self._leadership = Leadership.of(answer.members)
        except MillraceError as error:
            return self._fail(again(error))
        self._life.take(Step.LEAD)
        return self._start(RefreshMetadata(self._leadership.topics, answer.skip_assignment))

    def on_refreshed(
        self,
        learn: RefreshMetadata,
        counts: Mapping[str, int],
        now_ms: int,
        *,
        assigned: Collection[TopicPartition] | None = None,
    ) -> list[Effect]:
        """The leader knows the topics: it places their partitions.

        `assigned` is what it did not place itself, where it is a static member that came back.
        """
        if learn is not self._calls.current:
            return []
        self._answered()
        assert self._leadership is not None
        self._counts = counts
        if assigned is not None:
            self._leadership.watch_assigned(assigned)
            return self._sync(())
        placed = self._leadership.watch(counts)
        assignor = self._config.assignor(self.identity.protocol)
        assert assignor is not None
        try:
            return self._sync(place(assignor, placed, self._leadership.members))
        except MillraceError as error:
            return self._fail(again(error))

    def on_synced(self, sync: Sync, answer: SyncGroupResponse, now_ms: int) -> list[Effect]:
        """The member has its assignment: it gives up what is not in it, then takes the rest."""
        if sync is not self._calls.current:
            return []
        self._answered()
        self._heard(now_ms)
        try:
            assigned = frozenset(decode_assigned(answer.assignment))
        except WireError as error:
            return self._fail(ProtocolViolation(f"the leader's assignment is none: {error}"))
        self._assigned = assigned
        gone = self.held - assigned
        if gone:
            self._rejoin_reason = f"gave up {member_events.names(gone)}, which others may wait for"
            return self._give_up(gone, Step.TAKE_OVER)
        return self._take_over()

    def on_handed_over(self, hand_over: HandOver, now_ms: int) -> list[Effect]:
        """The user has let go, or has taken over."""
        if hand_over is not self._handing_over:
            return []
        self._handing_over = None
        if isinstance(hand_over, Assign):
            self._life.take(Step.SETTLE)
            event = member_events.assigned(
                self._config.group,
                self.identity.generation,
                held=self.held,
                before=self._before,
                took_ms=now_ms - self._began_ms,
            )
            self._before = self.held
            return [event, *self._settled(now_ms)]
        self.held -= hand_over.partitions
        if self._fenced is not None:
            error, self._fenced = self._fenced, None
            return self._fence(error, now_ms)
        if self._leave_reason is not None:
            return self._go(now_ms)
        if self._after is Step.TAKE_OVER:
            return self._take_over()
        return self._join(self._rejoin_reason or "it gave its partitions up")

    def on_heard(self, heartbeat: Heartbeat, now_ms: int) -> list[Effect]:
        """A heartbeat was answered: all is well."""
        if self._heartbeats.ended(heartbeat):
            self._heard(now_ms)
        return []

    def on_left(self, leave: Leave, now_ms: int) -> list[Effect]:
        """The group knows that the member is gone."""
        return self._gone(now_ms) if leave is self._calls.current else []

    def on_failed(self, what: Call | Heartbeat, error: MillraceError, now_ms: int) -> list[Effect]:
        """A call or heartbeat was refused, or got no answer."""
        if isinstance(what, Heartbeat):
            return self._heartbeat_failed(what, error, now_ms)
        if what is not self._calls.current:
            return []
        self._calls.ended()
        if self.state is MemberState.LEAVING:
            return self._gone(now_ms)
        if isinstance(error, MemberFenced):
            return self._fence(error, now_ms)
        if isinstance(error, RebalanceInProgress):
            return self._join(str(error))
        if not error.retriable:
            return self._fail(error)
        self._calls.repeat(what, now_ms + self._backoff.next_ms())
        return []

    # Time

    def deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called next; None: not before something happens."""
        retry_ms = self._calls.retry_at_ms
        if not self._sends_heartbeats:
            return retry_ms
        due_ms = self._heartbeats.due_ms
        return due_ms if retry_ms is None else min(retry_ms, due_ms)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Does what is due; earlier calls do nothing."""
        due_ms = self.deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return []
        effects: list[Effect] = []
        late_ms = now_ms - due_ms
        if late_ms >= LOOP_STALL_MS:
            effects.append(member_events.loop_stalled(late_ms, self._config.session_timeout_ms))
        call = self._calls.due(now_ms)
        if call is not None:
            # A join is made anew: what is wanted and held may have changed.
            effects += self._join("again") if isinstance(call, Join) else self._start(call)
        if self._sends_heartbeats and self._heartbeats.is_due(now_ms):
            self._heartbeats.in_flight = heartbeat = self.identity.heartbeat()
            effects.append(heartbeat)
        return effects

    # Inside: what comes next

    def _settled(self, now_ms: int) -> list[Effect]:
        """Looks, in a stable generation, whether something has come up meanwhile."""
        if self.state is not MemberState.STABLE:
            return []
        if self._fenced is not None:
            error, self._fenced = self._fenced, None
            return self._fence(error, now_ms)
        if self._leave_reason is not None:
            return self._go(now_ms)
        if self._wanted != self._joined_topics:
            self._rejoin_reason = f"it subscribes to {', '.join(sorted(self._wanted))}"
        elif self._leadership is not None:
            changes = self._leadership.changes(self._counts)
            self._rejoin_reason = "; ".join(changes) or self._rejoin_reason
        if self._rejoin_reason is None:
            return []
        return self._rebalance(self._rejoin_reason, now_ms)

    def _rebalance(self, reason: str, now_ms: int) -> list[Effect]:
        """Leaves the stable generation for the next one."""
        self._rejoin_reason = reason
        self._began_ms = now_ms
        event = member_events.rebalancing(self._config.group, reason)
        gives_up = (
            self.held
            if self._is_eager
            else frozenset(each for each in self.held if each.topic not in self._wanted)
        )
        if gives_up:
            return [event, *self._give_up(gives_up, Step.JOIN)]
        return [event, *self._join(reason)]

    def _join(self, reason: str) -> list[Effect]:
        self._life.take(Step.JOIN)
        self._rejoin_reason = None
        self._joined_topics = self._wanted
        return self._start(self.identity.join(self._wanted, self.held, reason))

    def _sync(self, assignments: tuple[MemberAssignment, ...]) -> list[Effect]:
        self._life.take(Step.SYNC)
        return self._start(self.identity.sync(assignments))

    def _give_up(
        self, partitions: Partitions, after: Step, lost: MillraceError | None = None
    ) -> list[Effect]:
        self._life.take(Step.GIVE_UP)
        self._after = after
        self._handing_over = Revoke(partitions, lost)
        return [self._handing_over]

    def _take_over(self) -> list[Effect]:
        self._life.take(Step.TAKE_OVER)
        added = self._assigned - self.held
        self.held = self.identity.last_assigned = self._assigned
        self.identity.last_generation = self.identity.generation
        self._handing_over = Assign(self.held, added)
        return [self._handing_over]

    def _go(self, now_ms: int) -> list[Effect]:
        """Leaves, once nothing is held any more."""
        if self._awaits_id:
            # The answer comes at once and brings the id that the group would wait for.
            self._life.take(Step.LEAVE)
            return []
        self._calls.forget()
        if self.held:
            return self._give_up(self.held, Step.LEAVE)
        self._life.take(Step.LEAVE)
        return self._leave_group(now_ms)

    def _leave_group(self, now_ms: int) -> list[Effect]:
        """Tells the group. A static member does not: its place is kept until it comes back."""
        if not self.identity.member_id or self.identity.is_kept:
            return self._gone(now_ms)
        return self._start(self.identity.leave(self._leave_reason or ""))

    def _gone(self, now_ms: int) -> list[Effect]:
        self._life.take(Step.GONE)
        self._forget_identity()
        self._calls.forget()
        self._before = _NOTHING
        if self._wanted:
            self._began_ms = now_ms
            return [Left(), *self._join("it subscribes again")]
        return [Left()]

    # Inside: trouble

    def _fence(self, error: MemberFenced, now_ms: int) -> list[Effect]:
        """The group has gone on without this member: what it held is lost, and it begins again."""
        if isinstance(error, InstanceFenced):
            return self._fail(error)
        if self._handing_over is not None:
            self._fenced = error
            return []
        self._calls.forget()
        if not isinstance(error, IllegalGeneration):
            self.identity.member_id = NO_MEMBER
        self.identity.generation = NO_GENERATION
        self._leadership = self._heartbeats.in_flight = None
        self._began_ms = now_ms
        if self.held:
            return [
                member_events.lost(self.held, error),
                *self._give_up(self.held, Step.JOIN, error),
            ]
        if self._leave_reason is not None:
            self._life.take(Step.LEAVE)
            return self._gone(now_ms)
        return self._join(str(error))

    def _heartbeat_failed(
        self, heartbeat: Heartbeat, error: MillraceError, now_ms: int
    ) -> list[Effect]:
        if not self._heartbeats.ended(heartbeat) or not self.identity.speaks_for(heartbeat):
            return []
        if isinstance(error, RebalanceInProgress):
            self._heard(now_ms)
            if self.state is MemberState.STABLE:
                return self._rebalance(str(error), now_ms)
            if self.state in (MemberState.ASSIGNING, MemberState.REVOKING):
                self._rejoin_reason = str(error)
            return []
        if isinstance(error, MemberFenced):
            return self._fence(error, now_ms) if self._sends_heartbeats else []
        if not error.retriable:
            return self._fail(error)
        self._heartbeats.due_ms = now_ms + self._backoff.next_ms()
        silent_ms = self._heartbeats.new_silence_ms(now_ms)
        if silent_ms is None:
            return []
        return [
            member_events.coordinator_lost(
                self._config.group, silent_ms, held=self.held, error=error
            )
        ]

    def _fail(self, error: MillraceError) -> list[Effect]:
        self._life.take(Step.FAIL)
        self.error = error
        lost, self.held = self.held, _NOTHING
        farewell: list[Effect] = []
        if self.identity.member_id and not self.identity.is_kept:
            # Its outcome is not awaited: the other members should not wait for this one.
            farewell.append(self.identity.leave(str(error)))
        self._calls.forget()
        self._handing_over = None
        self._forget_identity()
        return [*farewell, Fail(error, lost)]

    # Inside: small things

    @property
    def _sends_heartbeats(self) -> bool:
        return self.identity.generation >= 0 and self.state in IN_GENERATION

    @property
    def _awaits_id(self) -> bool:
        """Whether a join is on its way that will be answered with an id at once."""
        awaits_join = isinstance(self._calls.current, Join)
        return awaits_join and not self.identity.member_id and not self.identity.is_kept

    def _start(self, call: Call) -> list[Effect]:
        self._calls.start(call)
        return [call]

    def _answered(self) -> None:
        self._calls.ended()
        self._backoff.reset()

    def _heard(self, now_ms: int) -> None:
        self._heartbeats.answered(now_ms)
        self._backoff.reset()

    def _forget_identity(self) -> None:
        self.identity.forget()
        self._leadership = self._heartbeats.in_flight = None
