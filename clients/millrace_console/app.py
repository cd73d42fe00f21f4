"""The paths of the console, and what each of them answers.

    GET  /login                         a form; with ?token= it logs in, as the printed address does
    POST /login, /api/logout            a session begins, and ends
    GET  /                              the page; its modules read the rest
    GET  /api/session|cluster|topics|groups, /api/topics/T, /api/groups/G, /api/brokers/N/configs
    GET  /api/topics/T/tail             server-sent events, see `tail`
    GET  /api/topics/T/records/P/O      one record, with its batch dissected
    GET  /api/history?series=NAME       the course of a rate or of a lag
    POST /api/topics, /api/topics/T/delete|records, /api/groups/G/offsets    with `--allow-changes`

Owns the routes, and the status of each error.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from millrace.errors import BrokerError, ConfigError, MillraceError, NotAuthorized
from millrace_console import changes, views
from millrace_console.access import LoginAttempts, Session, Sessions
from millrace_console.clients import Clients
from millrace_console.errors import InputError, Refused
from millrace_console.guard import Guard, log_in, log_out, refused
from millrace_console.login import Login
from millrace_console.tail import TailRequest

STATIC = Path(__file__).parent / "static"
BODY_BYTES_MAX = 1 << 20
_LOGIN_BYTES_MAX = 4096
_PROBLEM_MARKER = "<!-- problem -->"
_TOO_MANY = "Too many logins have failed from this address; try again in a minute."
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Console:
    """What the paths answer from, beside the clients of each session."""

    login: Login
    cookie: str
    sessions: Sessions
    hosts: Collection[str] = ()
    allow_changes: bool = False
    attempts: LoginAttempts = field(default_factory=LoginAttempts)

    def app(self) -> ASGIApp:
        """The application for an ASGI server."""
        routes = [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/", self._page),
            Route("/api/session", self._session),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/cluster", _answer(self._cluster)),
            Route("/api/brokers/{node_id:int}/configs", _answer(self._broker_configs)),
            Route("/api/topics", _answer(self._topics)),
            Route("/api/topics/{topic}", _answer(self._topic)),
            Route("/api/topics/{topic}/tail", _answer(self._tail)),
            Route(
                "/api/topics/{topic}/records/{partition:int}/{offset:int}", _answer(self._record)
            ),
            Route("/api/groups", _answer(self._groups)),
            Route("/api/groups/{group:path}", _answer(self._group)),
            Route("/api/history", _answer(self._history)),
        ]
        if self.allow_changes:
            routes = [*self._changes(), *routes]
        files = Mount("/static", StaticFiles(directory=STATIC))
        inner = Starlette(routes=[*routes, files])
        return Guard(inner, sessions=self.sessions, hosts=self.hosts, cookie=self.cookie)

    def _changes(self) -> list[Route]:
        async def create(request: Request, body: dict[str, Any]) -> dict[str, Any]:
            return await changes.create_topic(_clients(request).admin, body)

        async def delete(request: Request, body: dict[str, Any]) -> dict[str, Any]:
            topic = request.path_params["topic"]
            return await changes.delete_topic(_clients(request).admin, topic, body)

        async def produce(request: Request, body: dict[str, Any]) -> dict[str, Any]:
            clients, topic = _clients(request), request.path_params["topic"]
            return await changes.produce(clients.servers, clients.options, topic, body)

        async def reset(request: Request, body: dict[str, Any]) -> dict[str, Any]:
            group = request.path_params["group"]
            return await changes.reset_offsets(_clients(request).admin, group, body)

        def post(path: str, change: Callable[..., Awaitable[dict[str, Any]]]) -> Route:
            async def endpoint(request: Request) -> Response:
                done = await change(request, await _body(request))
                _clients(request).sampler.refresh()
                return JSONResponse(done)

            return Route(path, _answer(endpoint), methods=["POST"])

        return [
            post("/api/topics", create),
            post("/api/topics/{topic}/delete", delete),
            post("/api/topics/{topic}/records", produce),
            post("/api/groups/{group:path}/offsets", reset),
        ]

    async def _login(self, request: Request) -> Response:
        name, secret = "", request.query_params.get("token", "")
        if request.method == "POST":
            form = parse_qs((await _read(request, _LOGIN_BYTES_MAX)).decode("utf-8", "replace"))
            name, secret = (form.get(each, [""])[0] for each in ("name", "password"))
        elif not secret or request.headers.get("sec-fetch-dest", "document") != "document":
            # A page of another site may load this address as an image, which is no login.
            return FileResponse(STATIC / self.login.page)
        host = "" if request.client is None else request.client.host
        if not self.attempts.may_try(host, time.monotonic()):
            return self._login_failed(429, _TOO_MANY)
        try:
            clients = await self.login.clients_of(name, secret)
        except MillraceError as error:
            return self._login_failed(502, str(error))
        if clients is None:
            return self._login_failed(403, self.login.refusal)
        self.attempts.succeeded(host)
        return log_in(RedirectResponse("/", 303), self.sessions, self.cookie, clients)

    def _login_failed(self, status: int, sentence: str) -> Response:
        page = (STATIC / self.login.page).read_text("utf-8")
        problem = f'<p class="problem" role="alert">{escape(sentence)}</p>'
        return HTMLResponse(page.replace(_PROBLEM_MARKER, problem), status)

    async def _logout(self, request: Request) -> Response:
        return log_out(request, JSONResponse({}), self.sessions, self.cookie)

    async def _page(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _session(self, request: Request) -> Response:
        return JSONResponse(
            {
                "csrf_token": request.state.session.csrf_token,
                "allow_changes": self.allow_changes,
                "user": _clients(request).user,
            }
        )

    async def _cluster(self, request: Request) -> Response:
        return JSONResponse(views.cluster_view(await _clients(request).sampler.first()))

    async def _broker_configs(self, request: Request) -> Response:
        admin = _clients(request).admin
        found = await admin.describe_broker_configs(request.path_params["node_id"])
        return JSONResponse({"configs": views.configs_view(found)})

    async def _topics(self, request: Request) -> Response:
        sampler = _clients(request).sampler
        return JSONResponse(views.topics_view(await sampler.first(), sampler.rates))

    async def _topic(self, request: Request) -> Response:
        clients, name = _clients(request), request.path_params["topic"]
        found = await clients.sampler.first()
        # The snapshot may be older than the topic.
        topic = found.topics.get(name) or await clients.admin.describe_topic(name)
        configs = await clients.admin.describe_configs(name)
        return JSONResponse(views.topic_view(found, topic, clients.sampler.rates, configs))

    async def _tail(self, request: Request) -> Response:
        wanted = TailRequest.of(request.path_params["topic"], request.query_params)
        clients = _clients(request)
        if clients.tails.is_full:
            return refused(503, "Too many tails are open; close one")
        topic = await clients.admin.describe_topic(wanted.topic)
        count = len(topic.partitions)
        if wanted.partition is not None and wanted.partition >= count:
            raise InputError(f"partition: {wanted.topic} has 0 to {count - 1}")
        session: Session = request.state.session
        events = clients.tails.events(wanted, count, may_go_on=lambda: not session.has_ended)
        return _EventStream(events, media_type="text/event-stream")

    async def _record(self, request: Request) -> Response:
        clients, path = _clients(request), request.path_params
        topic = await clients.admin.describe_topic(path["topic"])
        found = None
        if path["partition"] < len(topic.partitions):
            found = await clients.tails.record(path["topic"], path["partition"], path["offset"])
        return refused(404, "There is no such record") if found is None else JSONResponse(found)

    async def _groups(self, request: Request) -> Response:
        return JSONResponse(views.groups_view(await _clients(request).sampler.first()))

    async def _group(self, request: Request) -> Response:
        clients, name = _clients(request), request.path_params["group"]
        found = await clients.sampler.first()
        group = found.groups.get(name) or await clients.admin.describe_group(name)
        return JSONResponse(views.group_view(found, group))

    async def _history(self, request: Request) -> Response:
        series = request.query_params.get("series", "")
        return JSONResponse(_clients(request).sampler.history.course(series))


class _EventStream(StreamingResponse):
    """A stream that closes what it reads from, however it ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]


def _clients(request: Request) -> Clients:
    clients: Clients = request.state.session.clients
    return clients


def _answer(endpoint: Endpoint) -> Endpoint:
    """The endpoint, with the status of what it raises."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (InputError, ConfigError) as error:
            return refused(400, str(error))
        except NotAuthorized as error:
            return refused(403, str(error))
        except (Refused, BrokerError) as error:
            return refused(409, str(error))
        except MillraceError as error:
            return refused(502, str(error))
        except TimeoutError:
            return refused(504, "The brokers did not answer in time; try again")

    return answer


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await _read(request, BODY_BYTES_MAX))
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is not an object")
    return found


async def _read(request: Request, bytes_max: int) -> bytes:
    data = bytearray()
    chunks: AsyncIterator[bytes] = request.stream()
    try:
        async for chunk in chunks:
            data += chunk
            if len(data) > bytes_max:
                raise InputError(f"the body has more than {bytes_max} bytes")
    except ClientDisconnect:
        raise InputError("the body ended early") from None
    return bytes(data)
