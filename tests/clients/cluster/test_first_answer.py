"""A broker that hangs does not keep a client from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millrace import Admin
from millrace._cluster import first_answer as module
from millrace._cluster.first_answer import first_answer
from millrace.errors import AuthenticationFailed, ConnectionFailed, MillraceError
from millrace_protocol.api import ApiKey
from tests.clients.fake_broker import FakeBroker, Handler
from tests.hang_timeout import HANG_TIMEOUT_S

Ask = Callable[[], Coroutine[Any, Any, str]]


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEXT_AFTER_S", 0.01)


def answering(name: str, asked: list[str]) -> Ask:
    async def ask() -> str:
        asked.append(name)
        return name

    return ask


def failing(error: Exception) -> Ask:
    async def ask() -> str:
        raise error

    return ask


def hanging(cancelled: list[bool]) -> Ask:
    async def ask() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError

    return ask


async def test_the_first_that_answers_is_the_only_one_that_is_asked() -> None:
    asked: list[str] = []
    failures: list[MillraceError] = []
    asks = [failing(ConnectionFailed("x")), answering("a", asked), answering("b", asked)]
    assert await first_answer(asks, failures) == "a"
    assert asked == ["a"]
    assert [str(error) for error in failures] == ["x"]


async def test_the_next_is_asked_beside_one_that_hangs(short_wait: None) -> None:
    cancelled: list[bool] = []
    asks = [hanging(cancelled), answering("a", [])]
    assert await first_answer(asks, []) == "a"
    assert cancelled == [True]


async def test_one_that_is_late_may_still_answer(short_wait: None) -> None:
    answered = asyncio.Event()

    async def late() -> str:
        await answered.wait()
        return "late"

    async def refuse() -> str:
        answered.set()
        raise ConnectionFailed("x")

    assert await first_answer([late, refuse], []) == "late"


async def test_all_failures_are_told_and_the_wrong_password_at_once(short_wait: None) -> None:
    failures: list[MillraceError] = []
    asks = [failing(ConnectionFailed("x")), failing(ConnectionFailed("y"))]
    assert await first_answer(asks, failures) is None
    assert [str(error) for error in failures] == ["x", "y"]
    cancelled: list[bool] = []
    with pytest.raises(AuthenticationFailed):
        await first_answer([hanging(cancelled), failing(AuthenticationFailed("no"))], [])
    assert cancelled == [True]


async def test_a_client_starts_where_the_first_server_hangs(short_wait: None) -> None:
    async with FakeBroker({"t": 1}) as hung, FakeBroker({"t": 1}, node_id=1) as other:

        async def hang(request: Any, default: Handler) -> None:
            await asyncio.Event().wait()

        hung.script(ApiKey.METADATA, hang)
        servers = [hung.address, other.address]
        async with asyncio.timeout(HANG_TIMEOUT_S), Admin(servers) as admin:
            assert await admin.list_topics() == ["t"]
