"""Attacks on a listener with SASL: guesses of passwords, and logins that do not end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from millrace._cluster.scram_client import ScramClient
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse
from millrace_protocol.scram import ScramMechanism
from tests.broker.wire import connect
from tests.hostile.attack import closed, hostile, hostile_by_waiting, refused
from tests.hostile.target import Target

MECHANISM = ScramMechanism.SCRAM_SHA_256
GUESSERS = 20
"""Connections at a time: with the delay of a refusal, some ten thousand guesses a minute."""
SALTED: dict[tuple[bytes, int], bytes] = {}
"""An attacker salts its guess once for all names, whose salts differ: it takes what it is given."""


async def _guess(target: Target, user: str) -> str:
    async with connect(target.sasl_port) as wire:
        scram = ScramClient(MECHANISM, user, "guess", nonce="nonce", salted=SALTED)
        name = MECHANISM.sasl_name
        first = await wire.ask(AuthenticateRequest(name, scram.first()), AuthenticateResponse)
        wire.send(AuthenticateRequest(name, scram.final(first.auth_bytes)))
        outcome = await refused(wire, ErrorCode.SASL_AUTHENTICATION_FAILED)
        await closed(wire)
        return outcome


@hostile
async def ten_thousand_failed_logins_in_a_minute(target: Target) -> str:
    count = target.sized(100, 10_000)
    outcomes: set[str] = set()

    async def guess(guesser: int) -> None:
        for _ in range(count // GUESSERS):
            outcomes.add(await _guess(target, f"user-{guesser}"))

    await asyncio.gather(*map(guess, range(GUESSERS)))
    (outcome,) = outcomes
    return f"{outcome}, closed"


@hostile_by_waiting
async def logins_that_do_not_end(target: Target) -> str:
    count = target.sized(100, 1_000)
    before = target.open_files
    async with AsyncExitStack() as open_ones:
        for _ in range(count):
            wire = await open_ones.enter_async_context(connect(target.sasl_port))
            scram = ScramClient(MECHANISM, "user", "guess", nonce="nonce", salted=SALTED)
            request = AuthenticateRequest(MECHANISM.sasl_name, scram.first())
            await wire.ask(request, AuthenticateResponse)
        await target.until(lambda: target.open_files <= before)
    return "closed"


@hostile
async def messages_of_sasl_that_are_none(target: Target) -> str:
    for message in (
        b"",
        b"\0",
        b"n,,",
        b"\xff" * 100,
        b"n,,m=more,n=user,r=nonce",
        bytes(20_000),
    ):
        async with connect(target.sasl_port) as wire:
            wire.send(AuthenticateRequest(MECHANISM.sasl_name, message))
            outcome = await refused(wire, ErrorCode.SASL_AUTHENTICATION_FAILED)
            await closed(wire)
    return f"{outcome}, closed"
