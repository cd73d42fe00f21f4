"""Consumer groups: what many cost a producer, how one settles, commits, and a start with many.

All members are raw frames, so that the broker is measured and no client. The leader of a group
assigns its partitions with the assignor `sticky`. A group begins without a delay
(`group_initial_rebalance_delay_ms` is 0).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import mean

from benchmarks.broker import RunningBroker, running_broker
from benchmarks.group_members import (
    GROUP_MEMBERS,
    HEARTBEAT_INTERVAL_S,
    TOPIC,
    form,
    leave,
    open_group,
    read_shares,
)
from benchmarks.idle_connections import ack_p99_ms
from benchmarks.processes import child, measured, python_module, read_line
from benchmarks.results import RATIO_UNIT, Fact, Row, compare
from benchmarks.samples import Sample, Spread
from benchmarks.session import Session
from benchmarks.wire import BrokerConnection, UnexpectedResponse, frame, pump
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.framing import read_response_header
from millrace_protocol.messages.group_membership import FindCoordinatorRequest
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    GroupPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from millrace_server.group.records import partition_for_group

GROUP = "groups"
SLOWDOWN_LIMIT = 2.0
SETTLE_LIMIT_S = 2.0
SETTLE_HEARTBEAT_S = 1.0
"""A member learns of a rebalance with its next heartbeat; clients send one every three seconds
unless told otherwise, which alone may be more than the limit."""
COMMITS_IN_FLIGHT = 64
REPLAY_PARTITIONS = 100
RETRY_S = 0.001
NO_DELAY = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
MANY_OFFSETS = {**NO_DELAY, "MILLRACE_OFFSETS_MEMORY_MAX_BYTES": str(512 << 20)}
PRODUCE_TOPIC = "groups-bench"


def run(session: Session) -> Iterator[Row]:
    """A few facts of each kind."""
    yield from _heartbeats(session)
    yield from _settling(session)
    yield _commits(session)
    yield from _replay(session)


# Heartbeats beside a producer


def _heartbeats(session: Session) -> list[Row]:
    count = session.scale.groups
    alone: list[float] = []
    during: list[float] = []
    connections_max = count * GROUP_MEMBERS + 100
    with running_broker(
        session, "groups-data", connections_max=connections_max, settings=NO_DELAY
    ) as broker:
        with broker.connect() as connection:
            connection.create_topic(PRODUCE_TOPIC, durability="os")
            connection.create_topic(TOPIC)
        for number in range(session.scale.rounds):
            session.say(f"groups: {count} of {GROUP_MEMBERS} beside one producer")
            before = ack_p99_ms(session, broker, PRODUCE_TOPIC)
            with _beating(session, broker, count, f"round-{number}"):
                during.append(ack_p99_ms(session, broker, PRODUCE_TOPIC))
            alone.append(mean((before, ack_p99_ms(session, broker, PRODUCE_TOPIC))))
    ratios = [beside / free for beside, free in zip(during, alone, strict=True)]
    held = f"{count:,} groups of {GROUP_MEMBERS}".replace(",", " ")
    note = "one producer of 100-byte values, one in flight, durability=os"
    beats = f"each member heartbeats every {HEARTBEAT_INTERVAL_S:g} s, on a connection of its own"
    return [
        Fact(GROUP, "p99 of an ack, without groups", "ms", Spread.of(alone), None, note),
        Fact(GROUP, f"p99 of an ack, beside {held}", "ms", Spread.of(during), None, beats),
        Fact(GROUP, "p99 beside them / p99 without", RATIO_UNIT, Spread.of(ratios), SLOWDOWN_LIMIT),
    ]


@contextlib.contextmanager
def _beating(session: Session, broker: RunningBroker, count: int, name: str) -> Iterator[None]:
    host, port = broker.address
    command = python_module("benchmarks.group_members", host, str(port), str(count), name)
    with child(command, log=session.log) as process:
        read_line(process, session.log)
        yield
        assert process.stdin is not None
        process.stdin.write("leave\n")
        process.stdin.flush()
        read_line(process, session.log)


# One more member


def _settling(session: Session) -> list[Row]:
    members, partitions = session.scale.group_members, session.scale.group_partitions
    whole_s: list[float] = []
    joined_s: list[float] = []
    with running_broker(session, "settling-data", settings=NO_DELAY) as broker:
        with broker.connect() as connection:
            connection.create_topic(TOPIC, partitions=partitions)
        for number in range(session.scale.starts):
            session.say(f"groups: one joins {members} on {partitions} partitions")
            whole, joined = _settle(broker, f"settling-{number}", members, partitions)
            whole_s.append(whole)
            joined_s.append(joined)
    what = f"{members} members on {partitions:,} partitions".replace(",", " ")
    return [
        Fact(
            GROUP,
            f"A group of {what} settles after one more joins",
            "s",
            Spread.of(whole_s),
            SETTLE_LIMIT_S,
            f"until all have their assignment; raw frames, heartbeats every "
            f"{SETTLE_HEARTBEAT_S:g} s, assignor sticky",
        ),
        Fact(
            GROUP,
            "of this, after the last has joined again",
            "s",
            Spread.of(joined_s),
            None,
            "the coordinator's responses, the leader's assignment, and its record on the disk",
        ),
    ]


def _settle(broker: RunningBroker, group: str, count: int, partitions: int) -> tuple[float, float]:
    """Seconds from a further member's request until all have their share; and from the last join.

    Raises `UnexpectedResponse` unless every partition is assigned to one member.
    """
    with ExitStack() as stack:
        members = open_group(stack, broker.address, group, count)
        form([members], partitions)
        (newcomer,) = open_group(stack, broker.address, group, 1)
        started = time.perf_counter()
        newcomer.send_join()
        newcomer.read_id()
        newcomer.send_join()
        waiting = deque(members)
        turn = 0
        while waiting:
            due = started + turn * SETTLE_HEARTBEAT_S / count
            time.sleep(max(0.0, due - time.perf_counter()))
            member = waiting.popleft()
            if member.is_told_to_rejoin():
                member.send_join()
            else:
                waiting.append(member)
            turn += 1
        joined = time.perf_counter()
        all_members = [*members, newcomer]
        read_shares(all_members, partitions)
        settled = time.perf_counter()
        shares = [where for member in all_members for where in member.assigned]
        if len(shares) != partitions or len(set(shares)) != partitions or not newcomer.assigned:
            raise UnexpectedResponse(
                f"{group}: {len(shares)} partitions of {partitions} are shared"
            )
        leave([all_members])
    return settled - started, settled - joined


# Commits


def _commits(session: Session) -> Row:
    count = session.scale.commits
    session.say(f"groups: {count} commits")
    samples: list[Sample] = []
    with (
        running_broker(session, "commits-data", settings=NO_DELAY) as broker,
        broker.connect() as connection,
    ):
        connection.create_topic(TOPIC)
        connection.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(("committing",)))
        requests = [
            frame(ApiKey.OFFSET_COMMIT, _commit("committing", 1, offset))
            for offset in range(COMMITS_IN_FLIGHT)
        ]
        response = _committed(connection, requests[0])
        for _ in range(session.scale.rounds):
            samples.append(
                measured(
                    broker.pid,
                    count,
                    lambda: pump(
                        connection.sock,
                        requests,
                        count=count,
                        in_flight=COMMITS_IN_FLIGHT,
                        response_size=len(response),
                    ),
                )
            )
            _check_offset(connection, "committing", 0, (count - 1) % len(requests))
    return compare(
        GROUP,
        f"Commits of one partition, durability=fsync, {COMMITS_IN_FLIGHT} in flight",
        "commits",
        {"millrace": samples},
        [],
    )


def _commit(group: str, partitions: int, offset: int) -> OffsetCommitRequest:
    """A commit outside of a generation: the same offset in each of the first partitions."""
    return OffsetCommitRequest(
        group=group,
        generation=-1,
        member_id="",
        instance_id=None,
        partitions=tuple(
            CommitPartition(TOPIC, partition, offset, -1, "") for partition in range(partitions)
        ),
    )


def _committed(connection: BrokerConnection, request: bytes) -> bytes:
    """The response to a commit. Raises `UnexpectedResponse` if it was refused."""
    response = connection.exchange(request)
    for partition in connection.decode(ApiKey.OFFSET_COMMIT, response).partitions:
        if partition.error_code:
            raise UnexpectedResponse(f"a commit was refused: {partition.error_message}")
    return response


def _check_offset(connection: BrokerConnection, group: str, partition: int, offset: int) -> None:
    if not _knows_offset(connection, group, partition, offset):
        raise UnexpectedResponse(f"{group}: the coordinator is not there")


def _knows_offset(connection: BrokerConnection, group: str, partition: int, offset: int) -> bool:
    """False while the coordinator is not there. Raises `UnexpectedResponse` for another offset."""
    request = OffsetFetchRequest(group, (GroupPartition(TOPIC, partition),))
    response = connection.exchange(frame(ApiKey.OFFSET_FETCH, request))
    refusal = read_response_header(response).error_code
    if refusal and ERROR_TRAITS[ErrorCode(refusal)].retriable:
        return False
    (found,) = connection.decode(ApiKey.OFFSET_FETCH, response).partitions
    if found.error_code and ERROR_TRAITS[ErrorCode(found.error_code)].retriable:
        return False
    if found.offset != offset:
        raise UnexpectedResponse(f"{group}: {found.offset} is committed, and {offset} was acked")
    return True


# A start with many offsets


def _replay(session: Session) -> list[Row]:
    names = [
        f"replay-{number:06}" for number in range(session.scale.offset_records // REPLAY_PARTITIONS)
    ]
    records = len(names) * REPLAY_PARTITIONS
    session.say(f"groups: {records} offsets to replay")
    with (
        running_broker(session, "replay-data", settings=MANY_OFFSETS) as broker,
        broker.connect() as connection,
    ):
        connection.create_topic(TOPIC, partitions=REPLAY_PARTITIONS)
        connection.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest((names[0],)))
        requests = [
            frame(ApiKey.OFFSET_COMMIT, _commit(name, REPLAY_PARTITIONS, number))
            for number, name in enumerate(names)
        ]
        response = _committed(connection, requests[0])
        pump(
            connection.sock,
            requests,
            count=len(requests),
            in_flight=COMMITS_IN_FLIGHT,
            response_size=len(response),
        )
        os.kill(broker.pid, signal.SIGKILL)
    first_s: list[float] = []
    all_s: list[float] = []
    for _ in range(session.scale.restart_rounds):
        with running_broker(session, "replay-data", settings=MANY_OFFSETS) as broker:
            first, last = _offsets_known(broker, names)
            os.kill(broker.pid, signal.SIGKILL)
        first_s.append(first)
        all_s.append(last)
    what = f"{records:,} offset records".replace(",", " ")
    note = "from the start of the process, after kill -9; one group of each coordinator is asked"
    return [
        Fact(GROUP, f"First OffsetFetch answered, {what} to replay", "s", Spread.of(first_s)),
        Fact(
            GROUP,
            f"OffsetFetch of all coordinators answered, {what} to replay",
            "s",
            Spread.of(all_s),
            None,
            note,
        ),
    ]


def _offsets_known(broker: RunningBroker, names: list[str]) -> tuple[float, float]:
    """When the first coordinator answered for its last group, and when all had."""
    last_of = {partition_for_group(name): number for number, name in enumerate(names)}
    waiting = deque(last_of.values())
    times: list[float] = []
    with broker.connect() as connection:
        while waiting:
            number = waiting.popleft()
            if _knows_offset(connection, names[number], REPLAY_PARTITIONS - 1, number):
                times.append(time.perf_counter() - broker.started)
            else:
                waiting.append(number)
                time.sleep(RETRY_S)
    return times[0], times[-1]
