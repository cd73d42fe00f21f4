"""What every request passes before a page sees it, and the headers of every response.

Owns the order of the checks: host, then origin and token of a change, then the session. `access`
decides each. A login needs no session, and the files of the page have nothing secret.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace_console import access

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
CSRF_HEADER = "x-csrf-token"
_OPEN = ("/login", "/static/")
_SAFE = ("GET", "HEAD")


class Guard:
    """An ASGI application around another one. Puts the `Session` into `request.state`."""

    def __init__(
        self, app: ASGIApp, *, sessions: access.Sessions, hosts: Collection[str], cookie: str
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._hosts = hosts
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(n.lower().encode(), v.encode()) for n, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not access.is_allowed_host(host, self._hosts):
            return refused(400, "This host name is not allowed; start with --allowed-host NAME")
        is_change = request.method not in _SAFE
        if is_change and not access.is_same_origin(request.headers.get("origin", ""), host):
            return refused(403, "This request comes from another site")
        if request.url.path.startswith(_OPEN):
            return None
        session = self._session(request)
        if session is None:
            if request.method == "GET" and not request.url.path.startswith("/api/"):
                return RedirectResponse("/login", 303)
            return refused(401, "Log in first, at /login")
        if is_change and not access.is_same_token(request.headers.get(CSRF_HEADER, ""), session):
            return refused(403, "The token of this request is not that of the session; reload")
        request.state.session = session
        return None

    def _session(self, request: HTTPConnection) -> access.Session | None:
        value = request.cookies.get(self._cookie, "")
        return self._sessions.find(value, time.monotonic()) if value else None


def refused(status: int, sentence: str) -> Response:
    """A refusal as an object of JSON."""
    return JSONResponse({"error": sentence}, status)


def log_in(
    response: Response, sessions: access.Sessions, cookie: str, clients: access.Clients
) -> Response:
    """Opens a session, and sets its cookie on the response."""
    value = secrets.token_urlsafe(32)
    sessions.add(value, secrets.token_urlsafe(32), clients, time.monotonic())
    response.set_cookie(
        cookie, value, max_age=access.SESSION_S, httponly=True, samesite="strict", path="/"
    )
    return response


def log_out(
    request: Request, response: Response, sessions: access.Sessions, cookie: str
) -> Response:
    """Ends the session of a request, and takes its cookie away."""
    sessions.remove(request.cookies.get(cookie, ""))
    response.delete_cookie(cookie, httponly=True, samesite="strict", path="/")
    return response
