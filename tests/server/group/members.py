"""Members that carry on by themselves, as a consumer's client does.

One `step` is what a client does when it gets round to it: look at the answer it waits for, or send
what comes next. Follows what Kafka's clients do upon each error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace_protocol.consumer_protocol import decode_subscription
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.requests import JoinGroupResult, MemberIdRequired, SyncGroupResult
from tests.server.group.shell import Shell, offers, reads

PARTITIONS: Mapping[str, int] = {"flights": 3, "ports": 2}

_BEGIN_AGAIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
_FATAL = frozenset({ErrorCode.FENCED_INSTANCE_ID})


@dataclass
class Consumer:
    """A client in one of four phases: "out", "joining", "syncing", "stable"."""

    name: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ("flights",)
    member_id: str = ""
    generation: int = -1
    phase: str = "out"
    token: int | None = None
    owned: tuple[str, ...] = ()
    alive: bool = True
    assignments: dict[str, bytes] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The owner of its partitions: a static member's instance outlives a restart."""
        return self.instance_id or self.member_id

    def step(self, shell: Shell) -> None:
        """Does what comes next, if it is not waiting."""
        if not self.alive or (self.token is not None and shell.waits(self.token)):
            return
        if self.phase == "stable":
            self._beat(shell)
        elif self.token is None:
            self._send(shell)
        else:
            self._hear(shell)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """It wants to read something else, and joins again with its next step."""
        self.topics = topics
        self._rejoin()

    def disconnected(self) -> None:
        """The coordinator has gone with whatever was asked; it is asked again."""
        self.token = None

    def _send(self, shell: Shell) -> None:
        if self.phase == "syncing":
            self.token = shell.sync(
                self.member_id, self.generation, self.assignments, instance_id=self.instance_id
            )
            return
        self.phase = "joining"
        self.token = shell.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=offers("range", metadata=reads(*self.topics)),
        )

    def _hear(self, shell: Shell) -> None:
        assert self.token is not None
        answer = shell.replies[self.token]
        self.token = None
        if isinstance(answer, JoinGroupResult):
            self.member_id, self.generation = answer.member_id, answer.generation
            leads = answer.leader_id == answer.member_id and not answer.skip_assignment
            self.assignments = shared_out(answer) if leads else {}
            self.phase = "syncing"
        elif isinstance(answer, SyncGroupResult):
            self.owned = tuple(answer.assignment.decode().split())
            self.phase = "stable"
        else:
            assert isinstance(answer, ApiError)
            if isinstance(answer, MemberIdRequired):
                self.member_id = answer.member_id
            self._obey(answer.code)

    def _beat(self, shell: Shell) -> None:
        code = shell.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
        if code is not ErrorCode.NONE:
            self._obey(code)

    def _obey(self, code: ErrorCode) -> None:
        if code in _FATAL:
            self.alive = False
        if code in _BEGIN_AGAIN:
            self.member_id = ""
        self._rejoin()

    def _rejoin(self) -> None:
        self.phase, self.token, self.owned = "joining", None, ()


def shared_out(joined: JoinGroupResult) -> dict[str, bytes]:
    """The leader's assignment: each partition of a topic to one of the members that read it."""
    readers: dict[str, list[str]] = {}
    for member in joined.members:
        for topic in decode_subscription(member.metadata).topics:
            readers.setdefault(topic, []).append(member.member_id)
    shares: dict[str, list[str]] = {member.member_id: [] for member in joined.members}
    for topic, members in readers.items():
        for partition in range(PARTITIONS[topic]):
            shares[sorted(members)[partition % len(members)]].append(f"{topic}-{partition}")
    return {member_id: " ".join(share).encode() for member_id, share in shares.items()}
