"""A member of a group: what it said when it joined, and the requests of it that are parked.

Owns its votes. Knows neither the group nor time.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from millrace_server.group.effects import Token
from millrace_server.group.records import StoredMember
from millrace_server.group.requests import OfferedProtocol
from millrace_server.group.room import MEMBER_BYTES


@dataclass(slots=True)
class Member:
    """One member. At most one of `join_token` and `sync_token` is there.

    `is_new` is True until its first join is answered: until then it does not know its id, cannot
    heartbeat, and is dropped after the timeout for new members although its join is parked.
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
        """Size of what it says of itself, in all protocols together."""
        return sum(len(offered.metadata) for offered in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """What the member says through a protocol, b"" for one it does not offer."""
        return metadata_of(self.protocols, protocol)

    def vote(self, candidates: Container[str]) -> str | None:
        """The candidate that it likes best."""
        for offered in self.protocols:
            if offered.name in candidates:
                return offered.name
        return None

    def stored(self, protocol: str, assignment: bytes) -> StoredMember:
        """The member as a record of its generation has it."""
        return StoredMember(
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
    def restored(cls, stored: StoredMember, protocol: str) -> Member:
        """The member as a restart finds it: of its protocols only the chosen one is known."""
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


def metadata_of(protocols: tuple[OfferedProtocol, ...], name: str) -> bytes:
    """What is said through the protocol of that name, b"" when it is not offered."""
    for offered in protocols:
        if offered.name == name:
            return offered.metadata
    return b""
