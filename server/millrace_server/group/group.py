"""A group and its members: generation, protocol, leader, and the requests that are parked.

Owns the bookkeeping with its invariants, and which ids may act for a member. This is soft state: a
load makes it from the last record of the group, in Stable or Empty. Knows neither time nor effects;
`membership` and `rebalance` change it. Source: Kafka's `ClassicGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from millrace_protocol.errors import ErrorCode, WireError
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Token
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import GroupMetadataValue, MemberMetadata
from millrace_server.group.requests import JoinedMember, OfferedProtocol
from millrace_server.group.states import GroupState, Lifecycle, Step

GROUP_BYTES = 2_500
"""An empty group in memory, with its place in the registry."""
MEMBER_BYTES = 2_500
"""A member in memory without its metadata, with its timers and its parked request."""


@dataclass(slots=True)
class Member:
    """One member. At most one of `join_token` and `sync_token` is there.

    `is_new` is True until its first join gets a reply: until then it does not know its id, cannot
    heartbeat, and is removed after the timeout for new members although its join is parked.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    assignment: bytes = b""
    join_token: Token | None = field(default=None, repr=False)
    sync_token: Token | None = field(default=None, repr=False)
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def held_bytes(self) -> int:
        """About what it takes in memory; a new member id does not change it."""
        names = sum(len(offered.name) for offered in self.protocols)
        names += 2 * (len(self.client_id) + len(self.instance_id or ""))
        return MEMBER_BYTES + names + self.metadata_bytes + len(self.assignment)

    @property
    def metadata_bytes(self) -> int:
        """Size of its metadata, in all protocols together."""
        return sum(len(offered.metadata) for offered in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Its metadata in a protocol, b"" for one it does not offer."""
        return metadata_of(self.protocols, protocol)

    def vote(self, candidates: Container[str]) -> str | None:
        """The candidate that it prefers."""
        for offered in self.protocols:
            if offered.name in candidates:
                return offered.name
        return None

    def stored(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """The member in the record of its generation."""
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol: str) -> Member:
        """The member after a load: of its protocols only the chosen one is known."""
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=(OfferedProtocol(protocol, stored.subscription),),
            assignment=stored.assignment,
        )


class Group:
    """One group of one coordinator.

    Invariants: `leader_id` is a member, None if and only if there are none; `pending_sync` holds
    members, `pending_join` holds ids that are none; `awaiting_join` counts the members with a
    `join_token`; joins are parked only in PreparingRebalance, syncs only in CompletingRebalance.
    """

    __slots__ = (
        "_held_bytes",
        "_life",
        "_quota",
        "_supports",
        "awaiting_join",
        "generation",
        "has_new_member",
        "initial_join_until_ms",
        "leader_id",
        "members",
        "metadata_bytes",
        "name",
        "pending_join",
        "pending_sync",
        "protocol",
        "protocol_type",
        "state_wall_ms",
        "static_members",
        "storing_generation",
        "subscribed_topics",
    )

    def __init__(
        self, name: str, quota: MemoryQuota, *, wall_ms: int, state: GroupState = GroupState.EMPTY
    ) -> None:
        self.name = name
        self._quota = quota
        self._held_bytes = 0
        self._hold(GROUP_BYTES)
        self._life = Lifecycle(state)
        self.state_wall_ms = wall_ms
        """Since when it is in its state; for a dead group, since when it was empty."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only ever had offsets committed, without members."""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        """In the order of their joining; the first of those left follows a leader that is gone."""
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.pending_join: set[str] = set()
        """Ids given out to new members that have not joined with them yet."""
        self.pending_sync: set[str] = set()
        """Members that have not asked for the assignment of this generation."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics of a consumer group's members; None when they are not known."""
        self.storing_generation: int | None = None
        """The generation whose assignment is being written."""
        self.awaiting_join = 0
        self.metadata_bytes = 0
        self.initial_join_until_ms: int | None = None
        """While the initial delay runs: until when new members may extend it."""
        self.has_new_member = False
        """Whether a member has joined since the initial delay was last extended."""
        self._supports: Counter[str] = Counter()

    @classmethod
    def restored(cls, name: str, quota: MemoryQuota, stored: GroupMetadataValue) -> Group:
        """The group that its last record describes."""
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        group = cls(name, quota, wall_ms=stored.state_wall_ms, state=state)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol = stored.protocol
        for member in stored.members:
            group.add(Member.restored(member, stored.protocol or ""), stored.protocol_type)
        if stored.leader_id in group.members:
            group.leader_id = stored.leader_id
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def close(self) -> None:
        """Gives its part of the quota back; the group is not used any more."""
        self._hold(-self._held_bytes)

    @property
    def state(self) -> GroupState:
        return self._life.state

    def can_take(self, step: Step) -> bool:
        return self._life.can_take(step)

    def take(self, step: Step, *, wall_ms: int) -> None:
        """Moves to the state that the step leads to. Raises `IllegalStep`."""
        self._life.take(step)
        self.state_wall_ms = wall_ms

    @property
    def has_all_members_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return member_id == self.leader_id

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member; the first one leads, and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count(member, 1)
        self.pending_join.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Removes a member or a pending id; the caller replies to the requests parked with it."""
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.join_token is not None:
            self.awaiting_join -= 1
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, old_id: str, new_id: str) -> Member:
        """Gives a static member a new id, in its old place."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return member

    def update(
        self,
        member: Member,
        protocols: tuple[OfferedProtocol, ...],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Sets what a member gives anew with each join."""
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
        """Sets the assignment of a member."""
        self._hold(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def park_join(self, member: Member, token: Token) -> Token | None:
        """Keeps a join until the rebalance is complete; returns the one that it replaces."""
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

    def supports_protocols(self, protocol_type: str, protocols: Iterable[OfferedProtocol]) -> bool:
        """Whether every member supports one of these protocols."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.protocol_type and any(
            self._supports[offered.name] == len(self.members) for offered in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of those that all support.

        Of equally many votes the one that got its first vote first, in the members' order.
        """
        member_count = len(self.members)
        candidates = {name for name, count in self._supports.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        winner = votes.most_common(1)[0][0]
        if winner is None:
            raise AssertionError(f"the members of group {self.name!r} have no protocol in common")
        return winner

    def elect_joined_leader(self) -> bool:
        """Elects a member that has joined, unless the leader has; False when none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_token is None:
            joined = (m.member_id for m in self.members.values() if m.join_token is not None)
            successor = next(joined, None)
            if successor is None:
                return False
            self.leader_id = successor
        return True

    def init_next_generation(self, *, wall_ms: int) -> None:
        """Begins the next generation, of the members there are, or an empty one."""
        self.generation += 1
        self.pending_sync.clear()
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.take(Step.JOINED if self.members else Step.EMPTIED, wall_ms=wall_ms)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members of the generation for its leader."""
        protocol = self.protocol or ""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        )

    def stored(self, assignments: Mapping[str, bytes], *, wall_ms: int) -> GroupMetadataValue:
        """The record of the generation; members without an assignment get an empty one."""
        return GroupMetadataValue(
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

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic; True if that is not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that has these ids. Raises `ApiError`."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Instance {instance_id!r} of group {self.name!r} is member {current!r} now, "
                    f"which has replaced {member_id!r}; give each process its own instance id",
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
        """Raises `ApiError` unless it is the current one."""
        if generation != self.generation:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Generation {generation} of group {self.name!r} is not the current one: "
                f"{self._now()}; join the group again",
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
        self._quota.hold(self.name, size_bytes)

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol or ""))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)


def metadata_of(protocols: tuple[OfferedProtocol, ...], name: str) -> bytes:
    """The metadata in the protocol of that name, b"" when it is not offered."""
    for offered in protocols:
        if offered.name == name:
            return offered.metadata
    return b""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None when the bytes are none.

    A coordinator does not decode the metadata of members, but for this: which offsets may expire or
    be deleted while a group has members depends on the topics that they read.
    """
    try:
        return frozenset(decode_subscription(metadata).topics)
    except WireError:
        return None
