"""A console in the event loop of a test, and a client of it that is no browser."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from millrace_console.serve import serve
from tests.hang_timeout import HANG_TIMEOUT_S


@dataclass
class RunningConsole:
    """A console that serves, and a client that has not logged in."""

    login_url: str
    http: httpx2.AsyncClient
    serving: asyncio.Task[None]
    """Cancelling it ends the console in order."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self.login_url.partition("/login")[0].rstrip("/")

    async def log_in(self) -> str:
        """Logs in as the printed address does; returns the token of the session."""
        answer = await self.http.get(self.login_url)
        assert answer.status_code == 303
        token: str = (await self.read("session"))["csrf_token"]
        return token

    async def read(self, path: str) -> dict[str, Any]:
        """What a path below /api answers."""
        answer = await self.http.get(f"/api/{path}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def read_until(
        self, path: str, is_wanted: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """The same, when it is as wanted: the console reads the cluster again and again."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while True:
                found = await self.read(path)
                if is_wanted(found):
                    return found
                await asyncio.sleep(0.05)

    async def change(self, path: str, body: object, token: str) -> httpx2.Response:
        """A change as the page asks for it."""
        headers = {"Origin": self.origin, "X-CSRF-Token": token}
        return await self.http.post(f"/api/{path}", json=body, headers=headers)

    @asynccontextmanager
    async def tail(self, topic: str, query: str = "") -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a tail, as `(name, data)`, when it is open."""
        async with self.http.stream("GET", f"/api/topics/{topic}/tail?{query}") as answer:
            assert answer.status_code == 200
            events = _events(answer)
            try:
                yield events
            finally:
                await events.aclose()


async def _events(answer: httpx2.Response) -> Any:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def running_console(
    servers: str,
    *,
    allow_changes: bool = False,
    password: str | None = None,
    user_login: bool = False,
    hosts: Collection[str] = (),
) -> AsyncIterator[RunningConsole]:
    """A console on a free port, ended in order on leaving."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(
            serve(
                servers,
                listener,
                options={},
                password=password,
                user_login=user_login,
                hosts=hosts,
                allow_changes=allow_changes,
                on_ready=ready.set_result,
            )
        )
        serving.add_done_callback(lambda _: ready.cancel())
        try:
            url = await ready
        except asyncio.CancelledError:
            await serving
            raise
        base = url.partition("/login")[0]
        async with httpx2.AsyncClient(base_url=base, timeout=HANG_TIMEOUT_S) as http:
            yield RunningConsole(url, http, serving)
            serving.cancel()
            await asyncio.wait([serving])
