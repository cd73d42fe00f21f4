"""A group as it is now: members, generation, protocol, leader, and whose requests are parked.

Owns the bookkeeping and its invariants, and who may speak for a member. This is soft state: a
restart rebuilds it from the last record of the group, in Stable or Empty. Refuses to know time,
deadlines and effects; `rebalances` moves it. Source: Kafka's classic group protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.effects import JoinedMember, Token
from millrace_server.group.member import Member
from millrace_server.group.records import StoredGroup
from millrace_server.group.requests import OfferedProtocol
from millrace_server.group.room import GROUP_BYTES, Room
from millrace_server.group.states import GroupState, Lifecycle, Step
from millrace_server.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class Group:
    """One group of one coordinator.

    Invariants: `leader_id` is a member, None if and only if there are none; `unsynced` holds
    members, `pending` holds ids that are none; `awaiting_join` counts the members with a
    `join_token`; joins are parked only in PreparingRebalance, syncs only in CompletingRebalance.
    """

    __slots__ = (
        "_held_bytes",
        "_life",
        "_room",
        "_supports",
        "awaiting_join",
        "generation",
        "initial_join_until_ms",
        "leader_id",
        "members",
        "metadata_bytes",
        "name",
        "newcomer",
        "pending",
        "protocol",
        "protocol_type",
        "state_wall_ms",
        "static_ids",
        "topics",
        "unsynced",
    )

    def __init__(
        self, name: str, room: Room, *, wall_ms: int, state: GroupState = GroupState.EMPTY
    ) -> None:
        self.name = name
        self._room = room
        self._held_bytes = GROUP_BYTES
        room.held_bytes += GROUP_BYTES
        self._life = Lifecycle(state)
        self.state_wall_ms = wall_ms
        """Since when it has been in its state; for a dead group, since when it was empty."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only ever had its offsets committed from outside."""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        """In the order of their joining; the first of those left follows a leader that is gone."""
        self.static_ids: dict[str, str] = {}
        """Instance id to the member id that speaks for it."""
        self.pending: set[str] = set()
        """Ids given out to newcomers that have not come back with them."""
        self.unsynced: set[str] = set()
        """Members that have not asked for the assignment of this generation."""
        self.topics: frozenset[str] | None = None
        """What the members of a consumer group read; None when that is not known."""
        self.awaiting_join = 0
        self.metadata_bytes = 0
        self.initial_join_until_ms: int | None = None
        """While the initial delay runs: until when newcomers may extend it."""
        self.newcomer = False
        """Somebody has joined since the initial delay was last extended."""
        self._supports: Counter[str] = Counter()

    @classmethod
    def restored(cls, name: str, room: Room, stored: StoredGroup) -> Group:
        """The group as its last record has it."""
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        group = cls(name, room, wall_ms=stored.state_wall_ms, state=state)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol = stored.protocol
        for member in stored.members:
            group.add(Member.restored(member, stored.protocol or ""), stored.protocol_type)
        if stored.leader_id in group.members:
            group.leader_id = stored.leader_id
        group.topics = group._subscribed_topics()
        return group

    def close(self) -> None:
        """Gives back the room that it took; the group is not used any more."""
        self._room.held_bytes -= self._held_bytes
        self._held_bytes = 0

    @property
    def state(self) -> GroupState:
        return self._life.state

    def can_take(self, step: Step) -> bool:
        return self._life.can_take(step)

    def take(self, step: Step, *, wall_ms: int) -> None:
        """Moves to where the step leads. Raises `IllegalStep`."""
        self._life.take(step)
        self.state_wall_ms = wall_ms

    @property
    def all_joined(self) -> bool:
        """Whether nobody is left to wait for."""
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return member_id == self.leader_id

    def add(self, member: Member, protocol_type: str) -> None:
        """Takes a member in; the first leads, and brings the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count(member, 1)
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Forgets a member or a pending id; the tokens parked with the member are the caller's."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.join_token is not None:
            self.awaiting_join -= 1
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old_id: str, new_id: str) -> Member:
        """A static member goes on under a new id, in its old place."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        return member

    def update(
        self,
        member: Member,
        protocols: tuple[OfferedProtocol, ...],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """What a member says of itself has changed."""
        self._count(member, -1)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._count(member, 1)

    def growth_by(self, assignments: Mapping[str, bytes]) -> int:
        """By how many bytes these assignments are larger than those of the last generation."""
        before = sum(len(member.assignment) for member in self.members.values())
        return sum(map(len, assignments.values())) - before

    def assign(self, member: Member, assignment: bytes) -> None:
        """Gives a member its part of the work."""
        self._hold(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def park_join(self, member: Member, token: Token) -> Token | None:
        """Keeps a join until the rebalance is complete; returns the one whose place it takes."""
        displaced = member.join_token
        if displaced is None:
            self.awaiting_join += 1
        member.join_token = token
        return displaced

    def take_join(self, member: Member) -> Token | None:
        """The parked join, which is parked no longer."""
        token = member.join_token
        if token is not None:
            self.awaiting_join -= 1
            member.join_token = None
        return token

    def supports(self, protocol_type: str, protocols: Iterable[OfferedProtocol]) -> bool:
        """Whether every member could work with one of these protocols."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.protocol_type and any(
            self._supports[offered.name] == len(self.members) for offered in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members like best of those that all can work with.

        Of equally many votes the one that got its first vote first, in the members' order.
        """
        everybody = len(self.members)
        candidates = {name for name, count in self._supports.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        winner = votes.most_common(1)[0][0]
        if winner is None:
            raise AssertionError(f"the members of group {self.name!r} have no protocol in common")
        return winner

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one who has joined; False when nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_token is None:
            joined = (m.member_id for m in self.members.values() if m.join_token is not None)
            successor = next(joined, None)
            if successor is None:
                return False
            self.leader_id = successor
        return True

    def begin_generation(self, *, wall_ms: int) -> None:
        """The next generation: of the members there are, or an empty one."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.select_protocol() if self.members else None
        self.topics = self._subscribed_topics()
        self.take(Step.JOINED if self.members else Step.EMPTIED, wall_ms=wall_ms)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members of the generation as its leader is told of them."""
        protocol = self.protocol or ""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        )

    def stored(self, assignments: Mapping[str, bytes], *, wall_ms: int) -> StoredGroup:
        """The generation as its record has it; members without an assignment get an empty one."""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader_id=self.leader_id,
            state_wall_ms=wall_ms,
            members=tuple(
                member.stored(self.protocol or "", assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    def reads(self, topic: str) -> bool:
        """Whether members read the topic, or might: what is not known counts as read."""
        return self.topics is None or topic in self.topics

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that may speak under these ids. Raises `ApiError`."""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is not None and current != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Instance {instance_id!r} of group {self.name!r} is member {current!r} now, "
                    f"which has taken the place of {member_id!r}; give each process its own "
                    "instance id",
                )
            if current is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Group {self.name!r} has no instance {instance_id!r}: it has left or timed "
                    "out; join again without a member id",
                )
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {self.name!r} has no member {member_id!r}: it has left, timed out or did "
                f"not rejoin in time ({self._now()}); join again without a member id",
            )
        return member

    def check_generation(self, generation: int) -> None:
        """Raises `ApiError` unless it is the one that holds now."""
        if generation != self.generation:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Generation {generation} of group {self.name!r} does not hold: {self._now()}; "
                "join the group again",
            )

    def _now(self) -> str:
        leader = f"led by {self.leader_id!r}" if self.leader_id is not None else "without members"
        return f"it is in generation {self.generation}, {leader}, {self.state.value}"

    def _count(self, member: Member, sign: int) -> None:
        for offered in member.protocols:
            self._supports[offered.name] += sign
            if not self._supports[offered.name]:
                del self._supports[offered.name]
        self.metadata_bytes += sign * member.metadata_bytes
        self._hold(sign * member.held_bytes)

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._room.held_bytes += size_bytes

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            read = subscribed_topics(member.metadata(self.protocol or ""))
            if read is None:
                return None
            topics |= read
        return frozenset(topics)
