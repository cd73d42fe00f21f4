"""The state of one replica, and the only code that changes its epoch, role and high watermark.

`following`, `leading` and `voting` are the rules that use it; `node` passes the events. During an
event `now_ms` is its moment and `out` collects its effects.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_server.raft.config import RaftConfig
from millrace_server.raft.effects import AdvanceHighWatermark, Effect, EndEpoch, Persist, Send
from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.log_view import LogView
from millrace_server.raft.messages import Message
from millrace_server.raft.roles import Leader, Resigned, Role, Unattached, check_transition
from millrace_server.raft.voters import ReplicaKey, VoterHistory, VoterSet


class Replica:
    """Invariants: `state.epoch` and `high_watermark` never fall; a role follows the one before as
    `roles` allows."""

    def __init__(
        self,
        key: ReplicaKey,
        log: LogView,
        history: VoterHistory,
        state: ElectionState,
        config: RaftConfig,
        draw: Callable[[int], int],
    ) -> None:
        """`draw(n)` returns a random number from 0 to n - 1."""
        self.key = key
        self.log = log
        self.history = history
        self.state = state
        self.config = config
        self.high_watermark = 0
        self.role: Role = Unattached(0, 0)
        self.now_ms = 0
        self.out: list[Effect] = []
        self._draw = draw
        # The response to a fetch of an earlier process must not match one of this process.
        self._fetch_id = draw(1 << 31)

    @property
    def epoch(self) -> int:
        """The epoch of this replica."""
        return self.state.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters in force."""
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        """Whether this replica votes; one that does not is an observer."""
        return self.key in self.voters

    @property
    def may_lead(self) -> bool:
        """Whether this replica may ask for votes."""
        return self.history.may_lead(self.key, high_watermark=self.high_watermark)

    @property
    def leader_id(self) -> int | None:
        """The broker that leads in this epoch, None if it is not known or has resigned here."""
        return None if isinstance(self.role, Resigned) else self.state.leader_id

    def take_role(self, role: Role, *, state: ElectionState | None = None) -> None:
        """Takes a role, in a new state if one is given, which becomes durable first."""
        state = self.state if state is None else state
        check_transition((self.epoch, self.role), (state.epoch, role))
        if isinstance(self.role, Leader):
            self.out.append(EndEpoch(self.epoch))
        if state != self.state:
            self.state = state
            self.out.append(Persist(state))
        self.role = role

    def detach(self, *, state: ElectionState | None = None) -> None:
        """Becomes Unattached, and waits a random time."""
        role = Unattached(self.now_ms + self.election_timeout_ms(), self.now_ms)
        self.take_role(role, state=state)

    def enter_epoch(self, epoch: int) -> None:
        """A higher epoch exists: no role of the old one holds."""
        self.detach(state=ElectionState(epoch))

    def raise_high_watermark(self, offset: int) -> None:
        """Everything before `offset` is committed; an older one changes nothing."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.out.append(AdvanceHighWatermark(offset))

    def send(self, message: Message) -> None:
        """Sends a message when the effects before it are done."""
        self.out.append(Send(message))

    def election_timeout_ms(self) -> int:
        """A random one."""
        return self.config.election_timeout_ms + self._draw(self.config.election_timeout_ms)

    def any_voter(self, *, but: int | None = None) -> ReplicaKey | None:
        """A random voter, not that of broker `but`; None if there is none."""
        keys = [key for key in self.voters.keys if key.broker_id != but]
        return keys[self._draw(len(keys))] if keys else None

    def next_fetch_id(self) -> int:
        """The id of the next fetch."""
        self._fetch_id += 1
        return self._fetch_id
