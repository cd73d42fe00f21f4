"""Commits to a scripted coordinator: retries, and their order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace._group.commits import CommitIdentity, Commits
from millrace.config import ClientConfig
from millrace.errors import (
    CoordinatorUnavailable,
    IllegalGeneration,
    MemberFenced,
    MetadataTooLarge,
    MillraceError,
)
from millrace.events import EventFeed
from millrace.records import TopicPartition
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.group_offsets import (
    CommittedPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENT_MS = 30_000


class Told:
    """A coordinator that answers each commit with the next code that it was told, 0 for good."""

    group = "g"

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = deque(codes)
        self.requests: list[OffsetCommitRequest] = []
        self.on_request: list[Any] = []

    async def call(self, request: OffsetCommitRequest, answer: Any, **_: Any) -> Any:
        self.requests.append(request)
        code = self.codes.popleft() if self.codes else ErrorCode.NONE
        await asyncio.sleep(0)
        for react in self.on_request:
            react()
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.ILLEGAL_GENERATION):
            raise broker_error(code, f"refused: {code.name}")
        return OffsetCommitResponse(
            tuple(CommittedPartition(p.topic, p.partition, code, None) for p in request.partitions)
        )

    @property
    def offsets(self) -> list[int]:
        return [each.offset for request in self.requests for each in request.partitions]


class FakeMember:
    """A member with partitions."""

    def __init__(self) -> None:
        self.generation = 3
        self.mine = {T0, T1}
        self.fenced: list[tuple[int, MillraceError]] = []

    def commit_identity(self) -> CommitIdentity:
        return CommitIdentity(self.generation, "me")

    def may_commit(self, where: TopicPartition) -> bool:
        return where in self.mine

    def on_fenced(self, generation: int, error: MemberFenced) -> None:
        self.fenced.append((generation, error))


def commits_to(told: Told) -> tuple[Commits, FakeMember]:
    config = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=1)
    cluster = Cluster((("nowhere", 1),), config, feed=EventFeed("test"))
    commits = Commits(told, cluster)  # type: ignore[arg-type]
    member = FakeMember()
    commits.member = member
    return commits, member


async def test_retriable_errors_are_retried() -> None:
    told = Told(
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
    commits, _ = commits_to(told)
    outcome = (await commits.commit({T0: (5, "")}, timeout_ms=PATIENT_MS))[T0]
    assert outcome.is_committed and outcome.generation == 3
    assert len(told.requests) == 4


async def test_the_time_for_trying_ends_and_the_outcome_says_that_it_may_pass() -> None:
    told = Told(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000)
    commits, member = commits_to(told)
    outcome = (await commits.commit({T0: (5, "")}, timeout_ms=20))[T0]
    assert isinstance(outcome.error, CoordinatorUnavailable)
    assert outcome.is_retriable and not outcome.is_fenced and not member.fenced


async def test_a_commit_of_a_generation_that_the_member_has_left_is_made_in_the_next() -> None:
    told = Told(ErrorCode.ILLEGAL_GENERATION)
    commits, member = commits_to(told)

    def goes_on() -> None:
        member.generation = 4

    told.on_request.append(goes_on)
    outcome = (await commits.commit({T0: (5, "")}, timeout_ms=PATIENT_MS))[T0]
    assert outcome.is_committed and outcome.generation == 4
    assert [request.generation for request in told.requests] == [3, 4]
    assert not member.fenced


async def test_a_partition_that_is_lost_between_two_tries_is_not_committed() -> None:
    told = Told(ErrorCode.REBALANCE_IN_PROGRESS)
    commits, member = commits_to(told)
    told.on_request.append(lambda: member.mine.discard(T1))
    outcomes = await commits.commit({T0: (5, ""), T1: (6, "")}, timeout_ms=PATIENT_MS)
    assert outcomes[T0].is_committed and outcomes[T1].is_fenced
    assert told.offsets == [5, 6, 5]


async def test_a_fenced_member_is_told_once() -> None:
    told = Told(ErrorCode.ILLEGAL_GENERATION)
    commits, member = commits_to(told)
    outcomes = await commits.commit({T0: (5, ""), T1: (6, "")}, timeout_ms=PATIENT_MS)
    assert all(isinstance(each.error, IllegalGeneration) for each in outcomes.values())
    ((generation, error),) = member.fenced
    assert generation == 3 and "ILLEGAL_GENERATION" in str(error)


async def test_fatal_errors_are_not_retried() -> None:
    told = Told(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    commits, _ = commits_to(told)
    outcome = (await commits.commit({T0: (5, "x" * 9_999)}, timeout_ms=PATIENT_MS))[T0]
    assert isinstance(outcome.error, MetadataTooLarge)
    assert not outcome.is_retriable and not outcome.is_fenced
    assert len(told.requests) == 1


async def test_a_commit_that_is_tried_again_does_not_overtake_a_later_one() -> None:
    told = Told(*[ErrorCode.NOT_COORDINATOR] * 3)
    commits, _ = commits_to(told)
    first = asyncio.create_task(commits.commit({T0: (5, "")}, timeout_ms=PATIENT_MS))
    second = asyncio.create_task(commits.commit({T0: (6, "")}, timeout_ms=PATIENT_MS))
    await asyncio.gather(first, second)
    assert told.offsets == [5, 5, 5, 5, 6]
