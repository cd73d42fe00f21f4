"""What other sites, strangers and odd records cannot do to the console and its users."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from millrace import Producer
from millrace_console import tail
from millrace_console.access import FAILURES_MAX
from millrace_console.record_view import TAIL_BYTES_MAX
from millrace_server.testing import Broker
from tests.console.running_console import RunningConsole, running_console
from tests.hang_timeout import HANG_TIMEOUT_S


async def test_every_response_has_the_headers_that_keep_other_sites_out(
    console: RunningConsole,
) -> None:
    await console.log_in()
    for path in ("/", "/login", "/static/main.js", "/api/cluster", "/nothing", "/api/nothing"):
        headers = (await console.http.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_the_cookie_is_for_this_site_and_not_for_scripts(console: RunningConsole) -> None:
    answer = await console.http.get(console.login_url)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", ""])
async def test_a_host_that_is_not_allowed_is_refused(console: RunningConsole, host: str) -> None:
    await console.log_in()
    for path in ("/", "/login", "/api/cluster", "/static/main.js"):
        assert (await console.http.get(path, headers={"Host": host})).status_code == 400


async def test_a_host_that_the_operator_names_is_allowed(broker: Broker) -> None:
    async with running_console(broker.servers, hosts={"ops.example"}) as console:
        answer = await console.http.get("/login", headers={"Host": "ops.example:8080"})
        assert answer.status_code == 200


async def test_nothing_is_read_without_a_login(console: RunningConsole) -> None:
    for path in ("cluster", "topics", "session", "topics/clicks/tail", "history"):
        assert (await console.http.get(f"/api/{path}")).status_code == 401
    wrong = await console.http.get("/login?token=wrong")
    assert wrong.status_code == 403 and "set-cookie" not in wrong.headers
    sentence = "That is not the password or token of this console."
    assert sentence in wrong.text
    assert sentence not in (await console.http.get("/login")).text
    console.http.cookies.set("millrace-console-1", "x")
    assert (await console.http.get("/api/cluster")).status_code == 401


async def test_a_password_logs_in_by_the_form(broker: Broker) -> None:
    async with running_console(broker.servers, password="correct horse") as console:
        headers = {"Origin": console.origin}
        for word, status in (("wrong", 403), ("correct horse", 303)):
            form = {"password": word}
            answer = await console.http.post("/login", data=form, headers=headers)
            assert answer.status_code == status
        assert (await console.read("cluster"))["topics"] == 1
        elsewhere = {"Origin": "http://evil.example"}
        answer = await console.http.post("/login", data={"password": "x"}, headers=elsewhere)
        assert answer.status_code == 403


@pytest.mark.parametrize("what", ["no token", "wrong token", "other site", "no origin", "null"])
async def test_a_change_that_another_site_could_ask_for_is_refused(
    changing_console: RunningConsole, what: str
) -> None:
    console = changing_console
    headers = {"Origin": console.origin, "X-CSRF-Token": await console.log_in()}
    match what:
        case "no token":
            del headers["X-CSRF-Token"]
        case "wrong token":
            headers["X-CSRF-Token"] = "x"
        case "other site":
            headers["Origin"] = "http://evil.example"
        case "no origin":
            del headers["Origin"]
        case "null":
            headers["Origin"] = "null"
    paths = ("topics", "topics/clicks/delete", "topics/clicks/records", "groups/readers/offsets")
    for path in paths:
        body = {"confirm": "clicks", "topic": "clicks", "to": "latest", "value": "x"}
        answer = await console.http.post(f"/api/{path}", json=body, headers=headers)
        assert answer.status_code == 403
    found = await console.read("topics/clicks")
    assert found["offsets"] == 6


async def test_without_the_flag_nothing_can_be_changed(console: RunningConsole) -> None:
    token = await console.log_in()
    assert (await console.read("session"))["allow_changes"] is False
    for path, status in (
        ("topics", 405),
        ("topics/clicks/delete", 404),
        ("topics/clicks/records", 404),
        ("groups/readers/offsets", 405),
    ):
        answer = await console.change(path, {"confirm": "clicks", "topic": "x"}, token)
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("topics", []),
        ("topics", {"topic": ""}),
        ("topics", {"topic": "t", "partitions": 0}),
        ("topics", {"topic": "t", "partitions": True}),
        ("topics", {"topic": "t", "configs": [1]}),
        ("topics/clicks/records", {"value": 7}),
        ("topics/clicks/records", {"value_base64": "?"}),
        ("topics/clicks/records", {"partition": -1}),
        ("topics/clicks/records", {"headers": {"a": 1}}),
        ("groups/readers/offsets", {"topic": "clicks", "to": "elsewhere"}),
        ("groups/readers/offsets", {"topic": "clicks", "to": {"offset": "1"}}),
        ("groups/readers/offsets", {"topic": "clicks", "partition": 9, "to": "latest"}),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused_with_a_sentence(
    changing_console: RunningConsole, path: str, body: object
) -> None:
    token = await changing_console.log_in()
    answer = await changing_console.change(path, body, token)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_a_body_that_is_too_large_or_no_json_is_refused(
    changing_console: RunningConsole,
) -> None:
    console = changing_console
    token = await console.log_in()
    large = await console.change("topics/clicks/records", {"value": "x" * (1 << 20)}, token)
    assert large.status_code == 400
    headers = {"Origin": console.origin, "X-CSRF-Token": token}
    for content in (b"{", b"[" * 100_000, b"\xff"):
        answer = await console.http.post("/api/topics", content=content, headers=headers)
        assert answer.status_code == 400


@pytest.mark.parametrize(
    "query", ["partition=-1", "partition=x", "offset=1", "header==x", "partition=9", "time_ms=1e9"]
)
async def test_a_tail_that_makes_no_sense_is_refused_with_a_sentence(
    console: RunningConsole, query: str
) -> None:
    await console.log_in()
    answer = await console.http.get(f"/api/topics/clicks/tail?{query}")
    assert answer.status_code == 400 and answer.json()["error"]


async def test_tails_are_bounded(console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "STREAMS_MAX", 1)
    await console.log_in()
    async with console.tail("clicks") as events:
        await anext(events)
        assert (await console.http.get("/api/topics/clicks/tail")).status_code == 503


async def test_a_tail_shows_nothing_after_its_session(
    broker: Broker, console: RunningConsole
) -> None:
    token = await console.log_in()
    async with asyncio.timeout(HANG_TIMEOUT_S), console.tail("clicks") as events:
        assert (await anext(events))[0] == "ready"
        assert (await console.change("logout", {}, token)).status_code == 200
        async with Producer(broker.servers) as producer:
            await producer.send("clicks", b"later", partition=0)
        assert await anext(events) == ("end", None)


async def test_images_of_other_sites_are_no_logins(console: RunningConsole) -> None:
    for _ in range(FAILURES_MAX + 1):
        page = await console.http.get("/login?token=x", headers={"Sec-Fetch-Dest": "image"})
        assert page.status_code == 200
    await console.log_in()


VALUES: dict[str, bytes] = {
    "markup": b"<script>alert(1)</script>",
    "binary": bytes(range(256)),
    "line breaks": b"a\r\n\r\nevent: end\ndata: {}\n\n",
    "deep": b"[" * 100_000,
    "separators": "\u2028\u2029\ufeff".encode(),
    "huge": b"x" * 1_000_000,
}


@pytest.mark.parametrize("name", VALUES)
async def test_an_odd_record_is_shown_cut_and_as_text(
    broker: Broker, console: RunningConsole, name: str
) -> None:
    value = VALUES[name]
    await console.log_in()
    async with console.tail("clicks") as events, Producer(broker.servers) as producer:
        await anext(events)
        await producer.send("clicks", value, key=value[:1000], partition=0)
        event, (record,) = await anext(events)
    assert event == "records"
    shown: dict[str, Any] = record["value"]
    assert shown["size"] == len(value)
    assert shown["cut"] == (len(value) > TAIL_BYTES_MAX)
    assert len(json.dumps(record)) < 20_000
    if name == "binary":
        assert shown["hex"].startswith("00 01 02")
    else:
        assert value.decode().startswith(shown["text"])
    alone = await console.http.get(f"/api/topics/clicks/records/0/{record['offset']}")
    assert alone.headers["content-type"] == "application/json"
    assert len(alone.content) < 1_500_000
    assert alone.json()["value"]["size"] == len(value)


async def test_files_outside_of_the_page_are_not_served(console: RunningConsole) -> None:
    url = httpx2.URL(console.origin)
    for path in (b"/static/../app.py", b"/static/%2e%2e/app.py", b"/static//etc/passwd"):
        answer = await console.http.get(url.copy_with(raw_path=path))
        assert answer.status_code in (303, 404), path
