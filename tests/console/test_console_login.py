"""Users of the brokers that log in to the console, each with the rights of the user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from millrace import Admin
from millrace.errors import ConfigError
from millrace_console.access import FAILURES_MAX
from millrace_server.testing import Broker
from tests.console.running_console import RunningConsole, running_console

ROOT, ADA = ("root", "a long password"), ("ada", "pencil")
WRONG = "The name or the password is wrong."


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose only listener asks for users: `root`, who may do all, and `ada`, nothing."""
    async with Broker(
        data=tmp_path / "guarded",
        listen="sasl://127.0.0.1:0",
        super_users="User:root",
        initial_user=ROOT[0],
        initial_password=ROOT[1],
        failed_authentication_delay_ms=0,
    ) as running:
        async with Admin(running.servers, username=ROOT[0], password=ROOT[1]) as admin:
            await admin.create_topic("secret")
            await admin.set_password(*ADA)
        yield running


@pytest.fixture
async def users(guarded: Broker) -> AsyncIterator[RunningConsole]:
    """A console that has no user of its own."""
    async with running_console(guarded.servers, allow_changes=True) as running:
        yield running


async def log_in(console: RunningConsole, name: str, password: str) -> httpx2.Response:
    return await console.http.post(
        "/login",
        data={"name": name, "password": password},
        headers={"Origin": console.origin},
    )


async def test_a_user_sees_and_changes_what_the_user_may(users: RunningConsole) -> None:
    assert 'name="name"' in (await users.http.get("/login")).text
    answer = await log_in(users, *ROOT)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    session = await users.read("session")
    assert session["user"] == "root"
    assert [each["topic"] for each in (await users.read("topics"))["topics"]] == ["secret"]
    made = await users.change("topics", {"topic": "made"}, session["csrf_token"])
    assert made.status_code == 200


async def test_a_user_without_rights_sees_and_changes_nothing(users: RunningConsole) -> None:
    assert (await log_in(users, *ADA)).status_code == 303
    assert (await users.read("topics"))["topics"] == []
    token = (await users.read("session"))["csrf_token"]
    assert (await users.change("topics", {"topic": "made"}, token)).status_code == 403
    assert (await users.http.get("/api/topics/secret")).status_code == 403


@pytest.mark.parametrize(
    ("name", "password"),
    [("root", "wrong"), ("nobody", "wrong"), ("root", ""), ("", "x"), ("a" * 256, "x")],
)
async def test_a_failed_login_says_only_that_it_failed(
    users: RunningConsole, name: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer = await log_in(users, name, password)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert WRONG in answer.text
    assert (await users.http.get("/api/cluster")).status_code == 401
    assert "a long password" not in caplog.text


async def test_an_address_that_fails_too_often_has_to_wait(users: RunningConsole) -> None:
    for _ in range(FAILURES_MAX):
        assert (await log_in(users, "", "")).status_code == 403
    answer = await log_in(users, *ROOT)
    assert answer.status_code == 429 and "try again in a minute" in answer.text


async def test_another_site_cannot_log_a_user_in_or_out(users: RunningConsole) -> None:
    data = {"name": ROOT[0], "password": ROOT[1]}
    elsewhere = {"Origin": "http://evil.example"}
    answer = await users.http.post("/login", data=data, headers=elsewhere)
    assert answer.status_code == 403
    await log_in(users, *ROOT)
    assert (await users.change("logout", {}, "wrong token")).status_code == 403
    assert (await users.read("session"))["user"] == "root"


async def test_a_user_who_has_logged_out_has_no_session(users: RunningConsole) -> None:
    await log_in(users, *ROOT)
    cookies = dict(users.http.cookies)
    token = (await users.read("session"))["csrf_token"]
    assert (await users.change("logout", {}, token)).status_code == 200
    users.http.cookies.update(cookies)
    assert (await users.http.get("/api/session")).status_code == 401


async def test_a_console_for_users_has_no_password_and_needs_brokers_with_users(
    guarded: Broker, broker: Broker
) -> None:
    with pytest.raises(ConfigError, match="leave the password of the console out"):
        async with running_console(guarded.servers, password="a password"):
            pass
    with pytest.raises(ConfigError, match="ask for no password"):
        async with running_console(broker.servers, user_login=True):
            pass
