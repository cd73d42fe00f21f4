"""Attacks on consumer groups: many joins and members, and large metadata."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack

from millrace_protocol.codec import decode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
)
from tests.broker.wire import Wire, connect
from tests.hostile.attack import hostile, lives
from tests.hostile.target import Target

IN_FLIGHT = 50
_numbers = itertools.count()


def _join(
    group: str, member_id: str = "", *, instance_id: str | None = None, metadata: bytes = b""
) -> JoinGroupRequest:
    protocols = (JoinProtocol("range", metadata),)
    return JoinGroupRequest(
        group, 6_000, 6_000, member_id, instance_id, "consumer", protocols, None
    )


async def _make_coordinators(wire: Wire) -> None:
    await wire.ask(FindCoordinatorRequest(("any",)), FindCoordinatorResponse)


async def _outcome(wire: Wire) -> ErrorCode:
    """The next answer to a join; MEMBER_ID_REQUIRED if it only gives an id."""
    header, body = await wire.receive()
    if header.error_code == ErrorCode.NONE:
        given = decode(JoinGroupResponse, body, 0)
        return ErrorCode.MEMBER_ID_REQUIRED if given.generation < 0 else ErrorCode.NONE
    return ErrorCode(header.error_code)


@hostile
async def floods_of_joins_with_a_hundred_thousand_member_ids(target: Target) -> str:
    """New members that never return with their ids, and ids that the broker did not give out."""
    count = target.sized(2_000, 100_000)
    outcomes = set()
    async with connect(target.port) as wire:
        await _make_coordinators(wire)
        for start in range(0, count, IN_FLIGHT):
            for number in range(start, start + IN_FLIGHT):
                wire.send(_join("flood", f"forged-{number}" if number % 2 else ""))
            for _ in range(IN_FLIGHT):
                outcomes.add(await _outcome(wire))
        await lives(wire)
    assert outcomes == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID}, outcomes
    return "MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID"


@hostile
async def newcomers_in_ever_new_groups(target: Target) -> str:
    """A group is made for each, and forgotten when others need its place."""
    count = target.sized(2_000, 100_000)
    async with connect(target.port) as wire:
        await _make_coordinators(wire)
        for _ in range(0, count, IN_FLIGHT):
            for _ in range(IN_FLIGHT):
                wire.send(_join(f"new-{next(_numbers)}"))
            for _ in range(IN_FLIGHT):
                assert await _outcome(wire) is ErrorCode.MEMBER_ID_REQUIRED
        await lives(wire)
    return "MEMBER_ID_REQUIRED"


@hostile
async def members_that_say_much_in_ever_new_groups(target: Target) -> str:
    """Static members are in at once: what they all say together must not fill the broker."""
    metadata = bytes(800_000)
    outcomes = set()
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(connect(target.port))
        await _make_coordinators(other)
        wires = [
            await stack.enter_async_context(connect(target.port))
            for _ in range(target.sized(2, 10))
        ]
        groups = [[f"large-{next(_numbers)}" for _ in range(IN_FLIGHT)] for _ in wires]
        for wire, names in zip(wires, groups, strict=True):
            for name in names:
                wire.send(_join(name, instance_id="one", metadata=metadata))
            await wire.writer.drain()
        joined = []
        for wire, names in zip(wires, groups, strict=True):
            for name in names:
                outcome = await _outcome(wire)
                outcomes.add(outcome)
                if outcome is ErrorCode.NONE:
                    joined.append(name)
        await lives(other)
        # The next attack has a broker with room for groups.
        for name in joined:
            await other.ask(
                LeaveGroupRequest(name, (LeavingMember("", "one", None),)), LeaveGroupResponse
            )
    assert joined
    assert outcomes <= {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}, outcomes
    return ", ".join(sorted(code.name for code in outcomes))
