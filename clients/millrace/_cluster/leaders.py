"""Requests about partitions, each sent to the leader, until all are answered.

Owns which broker is asked, how many at a time, and retries when a leader has moved. Knows no
question and no answer but by their partition: callers bring the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace._cluster.connection import Connection
from millrace.errors import BrokerError, MillraceError, ProtocolViolation, RequestTimedOut, again
from millrace.records import TopicPartition
from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Request


class PartitionResult(Protocol):
    """What every answer says of its partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=PartitionResult)
Call = Callable[[Connection, tuple[Q, ...], int], Coroutine[Any, Any, tuple[R, ...]]]
"""Asks one broker: the questions, and how many milliseconds that may take."""


async def ask_leaders(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], call: Call[Q, R], *, timeout_ms: int
) -> dict[TopicPartition, R]:
    """The answer to each question.

    Follows leaders and tries again until `timeout_ms` is over. Raises the error of a partition,
    or the last one that stood in the way: if the last attempt had no time left for a response,
    that of the attempt before.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    reason: MillraceError | None = None
    found: dict[TopicPartition, R] = {}
    unanswered = dict(questions)
    attempt = 0
    while True:
        await _learn(cluster, unanswered)
        error = await _ask_each(cluster, unanswered, call, found, deadline)
        for where in found:
            unanswered.pop(where, None)
        if not unanswered:
            return found
        if error is None:
            raise ProtocolViolation(
                f"a broker was asked about {next(iter(unanswered))} and does not answer that"
            )
        if reason is not None and isinstance(error, RequestTimedOut):
            raise again(reason)
        reason = error
        delay_ms = cluster.backoff_ms(attempt)
        if not error.retriable or loop.time() + delay_ms / 1000 >= deadline:
            raise again(error)
        await asyncio.sleep(delay_ms / 1000)
        attempt += 1
        await cluster.refresh({where.topic for where in unanswered})


async def _learn(cluster: Cluster, unanswered: Mapping[TopicPartition, object]) -> None:
    unknown = dict.fromkeys(
        where.topic for where in unanswered if cluster.metadata.partition_count(where.topic) is None
    )
    if unknown:
        await cluster.await_topics(unknown)
    for where in unanswered:
        count = cluster.metadata.partition_count(where.topic)
        if count is not None and not 0 <= where.partition < count:
            raise no_such_partition(where, count)


def no_such_partition(where: TopicPartition, count: int) -> BrokerError:
    """The error for a partition number that the topic, with `count` partitions, does not have."""
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no such partition: {where.topic} has {count}",
        about=str(where),
    )


async def _ask_each(
    cluster: Cluster,
    unanswered: Mapping[TopicPartition, Q],
    call: Call[Q, R],
    found: dict[TopicPartition, R],
    deadline: float,
) -> MillraceError | None:
    """Asks all leaders at the same time; fills `found`, returns an error if there is one."""
    by_leader: dict[int, list[Q]] = {}
    error: MillraceError | None = None
    for where, question in unanswered.items():
        leader = cluster.metadata.leader_or_replica(*where)
        if leader is None:
            error = broker_error(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "no broker leads it now", about=str(where)
            )
        else:
            by_leader.setdefault(leader.node_id, []).append(question)
    answers = await asyncio.gather(
        *(
            _ask(cluster, node_id, call, bunch, deadline)
            for node_id, asked in by_leader.items()
            for bunch in _bunches(asked)
        )
    )
    for answer in answers:
        if isinstance(answer, MillraceError):
            error = answer
            continue
        for result in answer:
            where = TopicPartition(result.topic, result.partition)
            if not result.error_code:
                found[where] = result
                continue
            refused = broker_error(result.error_code, result.error_message, about=str(where))
            if error is None or error.retriable:
                error = refused
    return error


def _bunches(asked: list[Q]) -> list[tuple[Q, ...]]:
    """As many as one request may name (W-6.4)."""
    size = Request.array_max
    return [tuple(asked[start : start + size]) for start in range(0, len(asked), size)]


async def _ask(
    cluster: Cluster, node_id: int, call: Call[Q, R], asked: tuple[Q, ...], deadline: float
) -> tuple[R, ...] | MillraceError:
    left_ms = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
    try:
        return await call(await cluster.connection(node_id), asked, left_ms)
    except MillraceError as error:
        return again(error)
