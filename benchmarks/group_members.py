"""Members of consumer groups in raw frames, and a process that holds many of them.

Run as `python -m benchmarks.group_members HOST PORT GROUPS NAME`, it forms groups of three, prints
a line when all are stable, and heartbeats for each member every three seconds, spread evenly, as
clients do by default. Given a line it has all of them leave, prints another line, and ends.
"""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.processes import raise_open_files_limit
from benchmarks.wire import Address, BrokerConnection, UnexpectedResponse, frame, read_response
from millrace import TopicPartition
from millrace.assignors import StickyAssignor, Subscription, decode_assigned, encode_assigned
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import read_response_header
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
)

GROUP_MEMBERS = 3
HEARTBEAT_INTERVAL_S = 3.0
SESSION_TIMEOUT_MS = 60_000
REBALANCE_TIMEOUT_MS = 60_000
TOPIC = "shared"


class RawMember:
    """One member with a connection of its own; its leader assigns as `sticky` does."""

    def __init__(self, address: Address, group: str) -> None:
        self.connection = BrokerConnection(address)
        self._group = group
        self._assignor = StickyAssignor()
        self.member_id = ""
        self.generation = -1
        self.assigned: tuple[TopicPartition, ...] = ()
        self._led: tuple[MemberAssignment, ...] = ()

    def find(self) -> None:
        """Asks for the coordinator, which makes the topic that groups are kept in."""
        self.connection.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest((self._group,)))

    def send_join(self) -> None:
        """Asks to join; the first time that is for an id."""
        subscription = Subscription(
            (TOPIC,),
            user_data=self._assignor.user_data(
                (TOPIC,), assigned=self.assigned, generation=self.generation
            ),
        )
        request = JoinGroupRequest(
            group=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            instance_id=None,
            protocol_type="consumer",
            protocols=(JoinProtocol(self._assignor.name, subscription.encode()),),
            reason=None,
        )
        self.connection.sock.sendall(frame(ApiKey.JOIN_GROUP, request))

    def read_id(self) -> None:
        """Learns the id to join with."""
        self.member_id = self._response(ApiKey.JOIN_GROUP).member_id

    def read_joined(self, partitions: int, *, members: int) -> None:
        """Learns the generation, and as the leader shares the topic's partitions out.

        Raises `UnexpectedResponse` unless the group has as many members.
        """
        joined = self._response(ApiKey.JOIN_GROUP)
        self.generation = joined.generation
        if joined.leader != self.member_id:
            return
        if len(joined.members) != members:
            raise UnexpectedResponse(f"{self._group}: {len(joined.members)} members of {members}")
        subscriptions = {
            member.member_id: Subscription.decode(member.metadata) for member in joined.members
        }
        placement = self._assignor.assign({TOPIC: partitions}, subscriptions)
        self._led = tuple(
            MemberAssignment(member_id, encode_assigned(given))
            for member_id, given in placement.items()
        )

    def send_sync(self) -> None:
        """Asks for what it is given."""
        assignments, self._led = self._led, ()
        request = SyncGroupRequest(
            self._group, self.generation, self.member_id, None, None, None, assignments
        )
        self.connection.sock.sendall(frame(ApiKey.SYNC_GROUP, request))

    def read_synced(self) -> None:
        """Learns what it is given."""
        self.assigned = decode_assigned(self._response(ApiKey.SYNC_GROUP).assignment)

    def heartbeat_frame(self) -> bytes:
        """A heartbeat of the present generation."""
        return frame(
            ApiKey.HEARTBEAT,
            HeartbeatRequest(self._group, self.generation, self.member_id, None),
        )

    def is_told_to_rejoin(self) -> bool:
        """Sends a heartbeat; whether the response was that the group rebalances."""
        response = self.connection.exchange(self.heartbeat_frame())
        if read_response_header(response).error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        self.connection.decode(ApiKey.HEARTBEAT, response)
        return False

    def leave_frame(self, members: Sequence[RawMember]) -> bytes:
        """Takes members of this one's group out of it."""
        leaving = tuple(LeavingMember(member.member_id, None, None) for member in members)
        return frame(ApiKey.LEAVE_GROUP, LeaveGroupRequest(self._group, leaving))

    def _response(self, api: ApiKey) -> Any:
        return self.connection.decode(api, read_response(self.connection.sock))


def open_group(stack: ExitStack, address: Address, group: str, count: int) -> list[RawMember]:
    """Connects the members of a group, which close with `stack`."""
    members = [RawMember(address, group) for _ in range(count)]
    for member in members:
        stack.callback(member.connection.close)
    return members


def form(groups: Sequence[Sequence[RawMember]], partitions: int = 1) -> None:
    """Has all members of every group join.

    The first member of each group joins alone, since a group begins without a delay. It joins again
    when the others have sent their joins.
    """
    all_members = [member for group in groups for member in group]
    all_members[0].find()
    for member in all_members:
        member.send_join()
    for member in all_members:
        member.read_id()
    for first, *_ in groups:
        first.send_join()
    for first, *_ in groups:
        first.read_joined(partitions, members=1)
    for _, *others in groups:
        for member in others:
            member.send_join()
    for first, *_ in groups:
        first.send_join()
    for group in groups:
        read_shares(group, partitions)


def read_shares(group: Sequence[RawMember], partitions: int) -> None:
    """Reads the responses to the joins of all members, and brings each to its share."""
    for member in group:
        member.read_joined(partitions, members=len(group))
    for member in group:
        member.send_sync()
    for member in group:
        member.read_synced()


def leave(groups: Sequence[Sequence[RawMember]]) -> None:
    """Ends every group."""
    for group in groups:
        group[0].connection.sock.sendall(group[0].leave_frame(group))
    for group in groups:
        group[0].connection.decode(ApiKey.LEAVE_GROUP, read_response(group[0].connection.sock))


def _heartbeat_until_told(members: Sequence[RawMember]) -> None:
    frames = [member.heartbeat_frame() for member in members]
    sockets = [member.connection.sock for member in members]
    pause_s = HEARTBEAT_INTERVAL_S / len(members)
    due = time.monotonic()
    sent = 0
    while True:
        due += pause_s
        wait_s = max(0.0, due - time.monotonic())
        if select.select([sys.stdin], [], [], wait_s)[0]:
            break
        turn = sent % len(members)
        if sent >= len(members):
            members[turn].connection.decode(ApiKey.HEARTBEAT, read_response(sockets[turn]))
        sockets[turn].sendall(frames[turn])
        sent += 1
    for turn in range(min(sent, len(members))):
        members[turn].connection.decode(ApiKey.HEARTBEAT, read_response(sockets[turn]))


def main(arguments: list[str]) -> None:
    host, port, count, name = arguments
    raise_open_files_limit()
    address = (host, int(port))
    with ExitStack() as stack:
        groups = [
            open_group(stack, address, f"{name}-{number}", GROUP_MEMBERS)
            for number in range(int(count))
        ]
        form(groups)
        print("stable", flush=True)
        _heartbeat_until_told([member for group in groups for member in group])
        leave(groups)
        print("left", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
