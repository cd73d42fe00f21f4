"""GROUPS and LAG of the text dialect, about groups that joined and committed in frames."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from millrace_protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    encode_assignment,
    encode_subscription,
)
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    MemberAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from millrace_server.dialects.text import groups as text_groups
from millrace_server.testing import Broker
from tests.broker.wire import Text, Wire, batch, connect_text

GROUP = "hourly"


@pytest.fixture
async def text(broker: Broker) -> AsyncIterator[Text]:
    async with connect_text(broker.port) as connected:
        # After its first line a connection may be silent for longer than the disk takes.
        assert (await connected.ask("HELP"))[-1] == "OK"
        yield connected


async def find(wire: Wire, group: str = GROUP) -> None:
    await wire.ask(FindCoordinatorRequest((group,)), FindCoordinatorResponse)


async def commit(wire: Wire, group: str, *places: tuple[str, int, int]) -> None:
    """From outside, as tools do."""
    await find(wire, group)
    partitions = tuple(CommitPartition(*place, -1, None) for place in places)
    answer = await wire.ask(
        OffsetCommitRequest(group, -1, "", None, partitions), OffsetCommitResponse
    )
    assert [p.error_code for p in answer.partitions] == [0] * len(places)


async def member(wire: Wire, assignment: bytes, *, kind: str = "consumer") -> str:
    """Joins alone and is assigned; returns the member id."""
    await find(wire)
    protocols = (
        JoinProtocol("range", encode_subscription(ConsumerSubscription(("clicks",), None))),
    )

    def joining(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(GROUP, 60_000, 60_000, member_id, None, kind, protocols, None)

    offered = await wire.ask(joining(""), JoinGroupResponse)
    joined = await wire.ask(joining(offered.member_id), JoinGroupResponse)
    given = (MemberAssignment(joined.member_id, assignment),)
    sync = SyncGroupRequest(GROUP, joined.generation, joined.member_id, None, None, None, given)
    await wire.ask(sync, SyncGroupResponse)
    return joined.member_id


def assignment_of(*places: tuple[str, int]) -> bytes:
    return encode_assignment(ConsumerAssignment(by_topic(places), None))


async def test_groups_lists_every_group_by_name(wire: Wire, text: Text) -> None:
    """W-8.4"""
    assert await text.ask("GROUPS") == ["OK 0 groups"]
    await wire.create("clicks", partitions=2)
    await commit(wire, "nightly", ("clicks", 0, 0))
    await member(wire, assignment_of(("clicks", 0)))
    assert await text.ask("GROUPS") == [
        "group hourly state Stable members 1 protocol range",
        "group nightly state Empty members 0 protocol -",
        "OK 2 groups",
    ]


async def test_lag_shows_committed_and_assigned_partitions(wire: Wire, text: Text) -> None:
    """W-8.4"""
    await wire.create("clicks", partitions=3)
    await wire.create("views")
    await wire.produce("clicks", batch(b"a", b"b", b"c"))
    await commit(wire, GROUP, ("clicks", 0, 1), ("views", 0, 0))
    someone = await member(wire, assignment_of(("clicks", 0), ("clicks", 2)))
    assert await text.ask(f"LAG {GROUP}") == [
        f"topic clicks partition 0 committed 1 high watermark 3 lag 2 member {someone}",
        f"topic clicks partition 2 committed - high watermark 0 lag - member {someone}",
        "topic views partition 0 committed 0 high watermark 0 lag 0 member -",
        "OK 3 partitions",
    ]


async def test_lag_of_a_missing_partition_shows_its_committed_offset(
    wire: Wire, text: Text
) -> None:
    someone = await member(wire, assignment_of(("nowhere", 7)))
    assert await text.ask(f"LAG {GROUP}") == [
        f"topic nowhere partition 7 committed - high watermark - lag - member {someone}",
        "OK 1 partition",
    ]


@pytest.mark.parametrize(
    ("kind", "assignment"),
    [
        ("consumer", b""),
        ("consumer", b"\x00"),
        ("consumer", b"what members say to each other"),
        ("connect", assignment_of(("clicks", 0))),
    ],
    ids=["none yet", "cut short", "something else", "another type"],
)
async def test_an_assignment_that_is_no_consumers_leaves_the_committed_offsets(
    wire: Wire, text: Text, kind: str, assignment: bytes
) -> None:
    await wire.create("clicks")
    await commit(wire, GROUP, ("clicks", 0, 0))
    await member(wire, assignment, kind=kind)
    assert await text.ask(f"LAG {GROUP}") == [
        "topic clicks partition 0 committed 0 high watermark 0 lag 0 member -",
        "OK 1 partition",
    ]


async def test_a_group_cannot_forge_a_line_or_a_column(wire: Wire, text: Text) -> None:
    """W-8.4: names are one word, whatever is in them."""
    await wire.create("clicks")
    await commit(wire, "a state Dead\nOK \x1b[31m", ("clicks", 0, 0))
    assert await text.ask("GROUPS") == [
        r"group a\x20state\x20Dead\nOK\x20\x1b[31m state Empty members 0 protocol -",
        "OK 1 group",
    ]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("GROUPS all", "INVALID_REQUEST Type GROUPS"),
        ("LAG", "INVALID_REQUEST Type LAG GROUP"),
        ("LAG a b", "INVALID_REQUEST Type LAG GROUP"),
        ("LAG unknown", "GROUP_ID_NOT_FOUND There is no group 'unknown'"),
    ],
)
@pytest.mark.parametrize("topic_is_there", [False, True])
async def test_a_line_about_groups_that_cannot_be_answered_gets_err(
    wire: Wire, text: Text, line: str, error: str, topic_is_there: bool
) -> None:
    """W-8.1"""
    if topic_is_there:
        await find(wire)
    (answer,) = await text.ask(line)
    assert answer.startswith(f"ERR {error}")
    assert (await text.ask("GROUPS"))[-1] == "OK 0 groups"


async def test_a_group_name_that_is_too_long_is_refused_in_a_short_line(
    wire: Wire, text: Text
) -> None:
    await find(wire)
    (answer,) = await text.ask("LAG " + "g" * 60_000)
    assert answer.startswith("ERR INVALID_GROUP_ID A group id has 1 to 249 characters")
    assert len(answer) < 200


async def test_an_answer_that_is_full_says_how_much_is_left_out(
    wire: Wire, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-8.4"""
    monkeypatch.setattr(text_groups, "CHUNK_LINES", 10)
    await wire.create("clicks", partitions=30)
    await commit(wire, GROUP, *(("clicks", number, 0) for number in range(30)))
    whole = await text.ask(f"LAG {GROUP}")
    assert whole[-1] == "OK 30 partitions"
    numbers = [int(re.match(r"topic clicks partition (\d+) ", line)[1]) for line in whole[:-1]]  # type: ignore[index]
    assert numbers == list(range(30))
    monkeypatch.setattr(text_groups, "ANSWER_CHARACTERS", sum(map(len, whole[:15])))
    assert await text.ask(f"LAG {GROUP}") == [*whole[:15], "OK 15 of 30 partitions"]
