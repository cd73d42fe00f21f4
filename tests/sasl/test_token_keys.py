"""When the keys of an issuer are read again, and who waits for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from millrace_server.authentication.oauthbearer import TokenRefused
from millrace_server.machine import LoopSpawn
from millrace_server.token_keys import (
    FILE_CHECK_MS,
    KEYS_BYTES_MAX,
    REFRESH_MS,
    RETRY_MS,
    TokenKeys,
    TokenKeysError,
)
from tests.sasl.issuer import Issuer, key_set, write_keys
from tests.web_server import OK, WebServer


class StoppedClock:
    """A clock that a test sets."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def other() -> Issuer:
    return Issuer("second", "ES256")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def spawn() -> AsyncIterator[LoopSpawn]:
    running = LoopSpawn()
    yield running
    running.close()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[WebServer]:
    """It has the keys of `issuer`."""
    running = WebServer()
    running.says(OK, b"\r\n", key_set(issuer).encode())
    yield running
    running.close()


async def user_of(keys: TokenKeys, token: str) -> object:
    check = await keys.check_of(token)
    return check()["sub"]


# A file


async def test_the_key_is_found_by_its_name(
    tmp_path: Path, issuer: Issuer, other: Issuer, clock: StoppedClock, spawn: LoopSpawn
) -> None:
    source = write_keys(tmp_path / "keys.json", issuer, other)
    keys = TokenKeys(source, clock=clock, spawn=spawn)
    for each in (issuer, other):
        assert await user_of(keys, each.token()) == "ada"
    mixed = other.token(kid=issuer.kid)
    for token in (issuer.token(kid="third"), Issuer().token(), mixed, "a.b.c"):
        with pytest.raises(TokenRefused):
            await user_of(keys, token)


async def test_a_file_that_has_changed_is_read_again(
    tmp_path: Path, issuer: Issuer, other: Issuer, clock: StoppedClock, spawn: LoopSpawn
) -> None:
    """Its keys are those for the next token: the new one is taken, the old one is not."""
    path = tmp_path / "keys.json"
    keys = TokenKeys(write_keys(path, issuer), clock=clock, spawn=spawn)
    write_keys(path, other)
    with pytest.raises(TokenRefused, match="no key of the issuer is named 'second'"):
        await user_of(keys, other.token())
    clock.now_ms += FILE_CHECK_MS
    assert await user_of(keys, other.token()) == "ada"
    write_keys(tmp_path / "new.json", issuer)
    (tmp_path / "new.json").replace(path)
    clock.now_ms += 2 * FILE_CHECK_MS
    with pytest.raises(TokenRefused, match="no key of the issuer is named 'second'"):
        await user_of(keys, other.token())
    assert await user_of(keys, issuer.token()) == "ada"


@pytest.mark.parametrize("contents", [None, b"", b'{"keys": []}', b"\xff"])
async def test_keys_stay_where_the_file_cannot_be_read_again(
    tmp_path: Path,
    issuer: Issuer,
    clock: StoppedClock,
    spawn: LoopSpawn,
    contents: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "keys.json"
    keys = TokenKeys(write_keys(path, issuer), clock=clock, spawn=spawn)
    path.unlink() if contents is None else path.write_bytes(contents)
    for _ in range(3):
        clock.now_ms += 2 * FILE_CHECK_MS
        assert await user_of(keys, issuer.token()) == "ada"
    (line,) = [each for each in caplog.messages if "keys of tokens not read" in each]
    assert str(path) in line


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (None, "cannot be read: No such file"),
        (b'{"keys": []}', "keys.json has no set of keys that can check a token: it is empty"),
        (b"\xff", "keys.json has no set of keys: it is not UTF-8"),
        (b" " * (KEYS_BYTES_MAX + 1), "keys.json has more than 1048576 bytes"),
    ],
)
async def test_a_start_says_that_a_file_has_no_keys(
    tmp_path: Path, clock: StoppedClock, spawn: LoopSpawn, contents: bytes | None, why: str
) -> None:
    path = tmp_path / "keys.json"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(TokenKeysError, match=why):
        TokenKeys(str(path), clock=clock, spawn=spawn)


# An address


async def test_an_address_is_asked_for_the_first_token_and_after_an_hour(
    server: WebServer, issuer: Issuer, clock: StoppedClock, spawn: LoopSpawn
) -> None:
    keys = TokenKeys(server.address, clock=clock, spawn=spawn)
    await asyncio.gather(*(user_of(keys, issuer.token()) for _ in range(10)))
    assert len(server.requests) == 1
    clock.now_ms += REFRESH_MS - 1
    assert await user_of(keys, issuer.token()) == "ada"
    assert len(server.requests) == 1
    # After two hours without a token the issuer may have taken the key back.
    clock.now_ms += REFRESH_MS + 1
    server.says(OK, b"\r\n", key_set(Issuer("third")).encode())
    with pytest.raises(TokenRefused, match="no key of the issuer is named 'first'"):
        await user_of(keys, issuer.token())
    assert len(server.requests) == 2


async def test_an_address_is_asked_for_a_key_that_is_not_known_every_ten_seconds_at_most(
    server: WebServer, issuer: Issuer, other: Issuer, clock: StoppedClock, spawn: LoopSpawn
) -> None:
    keys = TokenKeys(server.address, clock=clock, spawn=spawn)
    assert await user_of(keys, issuer.token()) == "ada"
    server.says(OK, b"\r\n", key_set(issuer, other).encode())
    for _ in range(3):
        with pytest.raises(TokenRefused, match="no key of the issuer is named 'second'"):
            await user_of(keys, other.token())
    assert len(server.requests) == 1
    clock.now_ms += RETRY_MS
    assert await user_of(keys, other.token()) == "ada"
    assert len(server.requests) == 2


@pytest.mark.parametrize(("algorithm", "secret"), [("none", None), ("HS256", "s" * 32)])
async def test_nobody_is_asked_for_a_token_that_no_key_can_prove(
    server: WebServer, clock: StoppedClock, spawn: LoopSpawn, algorithm: str, secret: Any
) -> None:
    keys = TokenKeys(server.address, clock=clock, spawn=spawn)
    with pytest.raises(TokenRefused, match="is not one that proves the issuer"):
        await user_of(keys, jwt.encode({}, secret, algorithm))
    assert server.requests == []


async def test_an_address_that_does_not_answer_is_not_asked_for_each_token(
    server: WebServer,
    issuer: Issuer,
    clock: StoppedClock,
    spawn: LoopSpawn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.says(b"HTTP/1.1 503 Later\r\n\r\n")
    keys = TokenKeys(server.address, clock=clock, spawn=spawn)
    for _ in range(5):
        with pytest.raises(TokenRefused, match="there are no keys of the issuer yet"):
            await user_of(keys, issuer.token())
    assert len(server.requests) == 1
    assert "is answered with the status 503" in caplog.text
    clock.now_ms += RETRY_MS
    server.says(OK, b"\r\n", key_set(issuer).encode())
    assert await user_of(keys, issuer.token()) == "ada"
    # Keys stay where the address fails, and it is asked again sooner than in an hour.
    server.says(b"")
    for _ in range(3):
        clock.now_ms += 2 * REFRESH_MS
        assert await user_of(keys, issuer.token()) == "ada"
    server.says(OK, b"\r\n", key_set(issuer).encode())
    clock.now_ms += RETRY_MS
    assert await user_of(keys, issuer.token()) == "ada"
    await asyncio.to_thread(server.asked, 6)


async def test_a_token_whose_key_is_known_does_not_wait_for_a_slow_issuer(
    server: WebServer, issuer: Issuer, other: Issuer, clock: StoppedClock, spawn: LoopSpawn
) -> None:
    """Those whose keys are not wait for one answer together."""
    keys = TokenKeys(server.address, clock=clock, spawn=spawn)
    assert await user_of(keys, issuer.token()) == "ada"
    may_answer = threading.Event()

    def answer_late(connection: socket.socket) -> None:
        may_answer.wait()
        connection.sendall(OK + b"\r\n" + key_set(issuer, other).encode())

    server.answer = answer_late
    clock.now_ms += REFRESH_MS
    try:
        waiting = [asyncio.create_task(user_of(keys, other.token())) for _ in range(5)]
        await asyncio.to_thread(server.asked, 2)
        for _ in range(5):
            assert await user_of(keys, issuer.token()) == "ada"
        assert not any(each.done() for each in waiting)
        # A client that hangs up takes the answer from nobody.
        waiting.pop().cancel()
    finally:
        may_answer.set()
    assert await asyncio.gather(*waiting) == ["ada"] * 4
    assert len(server.requests) == 2
