"""The voters of a new cluster: found once, by asking every broker that the configuration names.

A voter is a broker with its data directory (KIP-853), and the configuration knows no directories.
So a broker that finds no voters on its disk asks the others. Where one of them knows the voters,
these are taken over: the cluster exists, and a broker whose directory is new is no voter of it.
Where none knows them, and all have answered, they are those that have answered. What was found is
made durable before it is told to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_hello import BrokerHelloResponse
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock
from millrace_server.logs import get_logger
from millrace_server.peers.calls import PeerUnreachable
from millrace_server.raft.voters import ReplicaKey, Voter, VoterSet

log = get_logger("millrace.quorum")
Address = tuple[str, int]
Ask = Callable[[int], Awaitable[BrokerHelloResponse]]
"""Exchanges BrokerHello with a broker. Raises `PeerUnreachable` and `ApiError`."""
RETRY_MS = 200
LOG_MS = 5_000


async def find_voters(
    own: Voter, members: Mapping[int, Address], ask: Ask, clock: Clock, *, timeout_ms: int
) -> VoterSet:
    """The voters of the cluster; `members` are the addresses of all voters, by broker id.

    A broker that is none of them waits until one of them knows the voters.

    Raises `ApiError` when that is not known within `timeout_ms`, and when this broker's
    configuration contradicts the others'.
    """
    began_ms = logged_ms = clock.monotonic_ms()
    own_id = own.key.broker_id
    answers: dict[int, Voter] = {own_id: own} if own_id in members else {}
    while True:
        missing = [broker_id for broker_id in members if broker_id not in answers]
        reason = ""
        for broker_id, answer in zip(missing, await _ask_all(missing, ask), strict=True):
            if isinstance(answer, PeerUnreachable):
                reason = str(answer)
                continue
            if answer.voters is not None:
                return VoterSet.of(
                    Voter(ReplicaKey(v.broker_id, v.directory_id), v.host, v.port)
                    for v in answer.voters
                )
            key = ReplicaKey(broker_id, answer.directory_id)
            answers[broker_id] = Voter(key, *members[broker_id])
        if len(answers) == len(members) and own_id in members:
            return VoterSet.of(answers.values())
        now_ms = clock.monotonic_ms()
        silent = ", ".join(str(b) for b in members if b not in answers)
        if now_ms - began_ms >= timeout_ms:
            missing_voters = (
                f"A new cluster needs all its voters once, and broker(s) {silent} did not answer "
                f"within {timeout_ms} ms; start them, and check `quorum` in their configuration"
                if own_id in members
                else f"Broker {own_id} is no voter of `quorum` and found none of the voters "
                f"{', '.join(map(str, members))} in a cluster within {timeout_ms} ms; start a "
                "majority of them, and check `quorum`"
            )
            last = f" ({reason})" if reason else ""
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, missing_voters + last)
        if now_ms - logged_ms >= LOG_MS:
            logged_ms = now_ms
            log.info("waiting for the other voters of a new cluster", brokers=silent, reason=reason)
        await asyncio.sleep(RETRY_MS / 1000)


async def _ask_all(brokers: list[int], ask: Ask) -> list[BrokerHelloResponse | PeerUnreachable]:
    return list(await asyncio.gather(*(_ask(broker_id, ask) for broker_id in brokers)))


async def _ask(broker_id: int, ask: Ask) -> BrokerHelloResponse | PeerUnreachable:
    try:
        return await ask(broker_id)
    except PeerUnreachable as error:
        return error
