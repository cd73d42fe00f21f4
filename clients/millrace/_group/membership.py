"""A member of a consumer group: the order of its joins, syncs, heartbeats, hand-overs and leaves.

Owns the member's id and generation, and revokes partitions eagerly or cooperatively. Pure: events
come in with `now_ms` of one monotonic clock, effects go out (`effects`), and the outcome of an
effect is an event too. `ownership` has the partitions.

    a member sends nothing for a generation that was fenced

Source: the client's side of Kafka's classic group protocol; KIP-345 (static members), KIP-394 (ids
before joins), KIP-429 (cooperative), KIP-814 (a static leader that comes back).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millrace._backoff import Rng
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
    Sync,
)
from millrace._group.member_identity import NO_MEMBER, MemberConfig, MemberIdentity
from millrace._group.member_states import IN_GENERATION, REBALANCING, Lifecycle, MemberState, Step
from millrace._group.ownership import Ownership
from millrace._group.placement import Leadership, place
from millrace._group.request_schedule import RequestSchedule
from millrace.assignors import RebalanceProtocol, decode_assigned, rebalance_protocol
from millrace.errors import (
    IllegalGeneration,
    InstanceFenced,
    MemberFenced,
    MillraceError,
    ProtocolViolation,
    RebalanceInProgress,
    again,
)
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import NO_GENERATION
from millrace_protocol.errors import WireError
from millrace_protocol.messages.group_membership import (
    JoinGroupResponse,
    MemberAssignment,
    SyncGroupResponse,
)

LEAVE_WAIT_MS = 3_000
"""How long a member that leaves waits for the generation that it has joined, to commit in it."""
_NO_TOPICS: frozenset[str] = frozenset()


class Membership:
    """One consumer's membership, over all generations; see `member_states` for its life.

    The shell calls `on_deadline` at `deadline_ms`, and every method's effects are carried out in
    order. At most one call and one hand-over are under way, and one heartbeat beside them.
    """

    def __init__(self, config: MemberConfig, *, rng: Rng) -> None:
        self.identity = MemberIdentity(config)
        self.error: MillraceError | None = None
        self._config = config
        self._requests = RequestSchedule(config, rng)
        self._life = Lifecycle()
        self._is_eager = rebalance_protocol(config.assignors) is RebalanceProtocol.EAGER
        self._wanted: frozenset[str] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._leave_reason: str | None = None
        self._rejoin_reason: str | None = None
        self._fenced: MemberFenced | None = None
        self._owned = Ownership()
        self._after: Step = Step.JOIN
        self._leadership: Leadership | None = None
        self._counts: Mapping[str, int] = {}
        self._began_ms = 0

    @property
    def state(self) -> MemberState:
        """Where the member is."""
        return self._life.state

    @property
    def held(self) -> Partitions:
        """The partitions that the member owns."""
        return self._owned.held

    @property
    def last_heartbeat_ms(self) -> int | None:
        """When the group last answered; None before the first answer."""
        return self._requests.answered_ms

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
        self._requests.bound_calls(None)
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
        if self.state is MemberState.LEAVING or self._owned.is_handing_over:
            return []
        if self.held and self.state in REBALANCING:
            # Commits may be refused until the generation is complete, which can need this member.
            self._requests.bound_calls(now_ms + LEAVE_WAIT_MS)
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
        if join is not self._requests.call:
            return []
        self._requests.succeed()
        self.identity.member_id = answer.member_id
        if self.state is MemberState.LEAVING:
            return self._leave_group(now_ms)
        if answer.generation < 0:
            return self._join("it has its id")
        self.identity.generation = answer.generation
        self._requests.on_answered(now_ms)
        self._leadership = None
        try:
            self.identity.protocol = self._config.assignor(answer.protocol).name
            if answer.leader != answer.member_id:
                return self._sync(())
            self._leadership = Leadership.of(answer.members)
        except MillraceError as error:
            return self._fail(again(error))
        self._life.take(Step.LEAD)
        return self._requests.start(
            RefreshMetadata(self._leadership.topics, answer.skip_assignment)
        )

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
        if learn is not self._requests.call:
            return []
        self._requests.succeed()
        assert self._leadership is not None
        self._counts = counts
        if assigned is not None:
            self._leadership.watch_assigned(assigned)
            return self._sync(())
        placed = self._leadership.watch(counts)
        assignor = self._config.assignor(self.identity.protocol)
        try:
            return self._sync(place(assignor, placed, self._leadership.members))
        except MillraceError as error:
            return self._fail(again(error))

    def on_synced(self, sync: Sync, answer: SyncGroupResponse, now_ms: int) -> list[Effect]:
        """The member has its assignment: it gives up what is not in it, then takes the rest."""
        if sync is not self._requests.call:
            return []
        self._requests.succeed()
        self._requests.on_answered(now_ms)
        try:
            self._owned.assigned = frozenset(decode_assigned(answer.assignment))
        except WireError as error:
            return self._fail(ProtocolViolation(f"the leader's assignment is malformed: {error}"))
        if self._leave_reason is not None:
            return self._go(now_ms)
        if gone := self._owned.unassigned:
            self._rejoin_reason = f"gave up {member_events.names(gone)}, which others may wait for"
            return self._give_up(gone, Step.TAKE_OVER)
        return self._take_over()

    def on_handed_over(self, hand_over: HandOver, now_ms: int) -> list[Effect]:
        """The user has let go, or has taken over."""
        if not self._owned.end(hand_over):
            return []
        if isinstance(hand_over, Assign):
            self._life.take(Step.SETTLE)
            took_ms, generation = now_ms - self._began_ms, self.identity.generation
            event = member_events.assigned(self._config.group, generation, self._owned, took_ms)
            self._owned.reported = self.held
            return [event, *self._settled(now_ms)]
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
        if self._requests.end_heartbeat(heartbeat):
            self._requests.on_answered(now_ms)
        return []

    def on_left(self, leave: Leave, now_ms: int) -> list[Effect]:
        """The group knows that the member is gone."""
        return self._gone(now_ms) if leave is self._requests.call else []

    def on_failed(self, what: Call | Heartbeat, error: MillraceError, now_ms: int) -> list[Effect]:
        """A call or heartbeat was refused, or got no answer."""
        if isinstance(what, Heartbeat):
            return self._heartbeat_failed(what, error, now_ms)
        if what is not self._requests.call:
            return []
        self._requests.end()
        if self.state is MemberState.LEAVING:
            return self._gone(now_ms)
        if isinstance(error, MemberFenced):
            return self._fence(error, now_ms)
        if isinstance(error, RebalanceInProgress):
            return self._join(str(error)) if self._leave_reason is None else self._go(now_ms)
        if not error.retriable:
            return self._fail(error)
        self._requests.repeat(what, now_ms)
        return []

    # Time

    def deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called next; None: not before something happens."""
        return self._requests.deadline_ms(with_heartbeats=self._sends_heartbeats)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Does what is due; earlier calls do nothing."""
        due_ms = self.deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return []
        session_timeout_ms = self._config.session_timeout_ms
        effects: list[Effect] = [*member_events.loop_stalls(now_ms - due_ms, session_timeout_ms)]
        call = self._requests.due_call(now_ms)
        # A member that leaves does not join again.
        is_leaving = self._leave_reason is not None and isinstance(call, Join)
        if is_leaving or self._requests.are_calls_overdue(now_ms):
            return [*effects, *self._go(now_ms)]
        if call is not None:
            # A join is made anew: what is wanted and held may have changed.
            effects += self._join("again") if isinstance(call, Join) else self._requests.start(call)
        if self._sends_heartbeats:
            effects += self._requests.due_heartbeat(now_ms, self.identity.heartbeat)
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
        gives_up = self.held if self._is_eager else self._owned.outside(self._wanted)
        if gives_up:
            return [event, *self._give_up(gives_up, Step.JOIN)]
        return [event, *self._join(reason)]

    def _join(self, reason: str) -> list[Effect]:
        self._life.take(Step.JOIN)
        self._rejoin_reason = None
        self._joined_topics = self._wanted
        return self._requests.start(self.identity.join(self._wanted, self.held, reason))

    def _sync(self, assignments: tuple[MemberAssignment, ...]) -> list[Effect]:
        self._life.take(Step.SYNC)
        return self._requests.start(self.identity.sync(assignments))

    def _give_up(
        self, partitions: Partitions, after: Step, lost: MillraceError | None = None
    ) -> list[Effect]:
        self._life.take(Step.GIVE_UP)
        self._after = after
        return [self._owned.revoke(partitions, lost)]

    def _take_over(self) -> list[Effect]:
        self._life.take(Step.TAKE_OVER)
        self.identity.last_assigned = self._owned.assigned
        self.identity.last_generation = self.identity.generation
        return [self._owned.take_over()]

    def _go(self, now_ms: int) -> list[Effect]:
        """Leaves, once nothing is held any more."""
        awaits_join = isinstance(self._requests.call, Join)
        if awaits_join and not self.identity.member_id and not self.identity.is_kept:
            # The answer comes at once and brings the id that the group would wait for.
            self._life.take(Step.LEAVE)
            return []
        self._requests.forget_call()
        if self.held:
            return self._give_up(self.held, Step.LEAVE)
        self._life.take(Step.LEAVE)
        return self._leave_group(now_ms)

    def _leave_group(self, now_ms: int) -> list[Effect]:
        """Tells the group. A static member does not: its place is kept until it comes back."""
        if not self.identity.member_id or self.identity.is_kept:
            return self._gone(now_ms)
        return self._requests.start(self.identity.leave(self._leave_reason or ""))

    def _gone(self, now_ms: int) -> list[Effect]:
        self._life.take(Step.GONE)
        self._forget_identity()
        self._requests.forget_call()
        self._owned.reported = frozenset()
        if self._wanted:
            self._began_ms = now_ms
            return [Left(), *self._join("it subscribes again")]
        return [Left()]

    # Inside: trouble

    def _fence(self, error: MemberFenced, now_ms: int) -> list[Effect]:
        """The group has gone on without this member: what it held is lost, and it begins again."""
        if isinstance(error, InstanceFenced):
            return self._fail(error)
        if self._owned.is_handing_over:
            self._fenced = error
            return []
        self._requests.forget_call()
        if not isinstance(error, IllegalGeneration):
            self.identity.member_id = NO_MEMBER
        self.identity.generation = NO_GENERATION
        self._leadership = None
        self._requests.forget_heartbeat()
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
        if not self._requests.end_heartbeat(heartbeat) or not self.identity.speaks_for(heartbeat):
            return []
        if isinstance(error, RebalanceInProgress):
            self._requests.on_answered(now_ms)
            if self.state is MemberState.STABLE:
                return self._rebalance(str(error), now_ms)
            if self.state in (MemberState.ASSIGNING, MemberState.REVOKING):
                self._rejoin_reason = str(error)
            return []
        if isinstance(error, MemberFenced):
            return self._fence(error, now_ms) if self._sends_heartbeats else []
        if not error.retriable:
            return self._fail(error)
        silent_ms = self._requests.repeat_heartbeat(now_ms)
        if silent_ms is None:
            return []
        group = self._config.group
        return [member_events.coordinator_lost(group, silent_ms, held=self.held, error=error)]

    def _fail(self, error: MillraceError) -> list[Effect]:
        self._life.take(Step.FAIL)
        self.error = error
        lost = self._owned.lose_all()
        farewell: list[Effect] = []
        if self.identity.member_id and not self.identity.is_kept:
            # Its outcome is not awaited: the other members should not wait for this one.
            farewell.append(self.identity.leave(str(error)))
        self._requests.forget_call()
        self._forget_identity()
        return [*farewell, Fail(error, lost)]

    # Inside: small things

    @property
    def _sends_heartbeats(self) -> bool:
        return self.identity.generation >= 0 and self.state in IN_GENERATION

    def _forget_identity(self) -> None:
        self.identity.forget()
        self._leadership = None
        self._requests.forget_heartbeat()
