"""A client of one connection: frames (wire_spec.md W-2), and lines of text (W-8)."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, NamedTuple

from tests.wire.apis import APIS, NAMES, REFUSAL
from tests.wire.layouts import Broken, Fields

HEADER = struct.Struct(">I2sHHIh")
RESPONSE_BIT = 0x8000
WAIT_S = 60.0
"""The longest that a check waits for bytes: the broker answers, or the check fails."""
_correlation_ids = itertools.count(1)


class Refused(Exception):
    """The whole request was refused (W-2.4)."""

    def __init__(self, api: str, code: int, refusal: Fields) -> None:
        super().__init__(f"{api} was refused with code {code}: {refusal.message}")
        self.code = code
        self.message: str = refusal.message
        self.versions: tuple[int, int] = (refusal.min_version, refusal.max_version)


class Response(NamedTuple):
    """A response frame."""

    api: int
    version: int
    correlation_id: int
    error_code: int
    body: bytes


def request_frame(
    api: int, body: bytes, *, version: int = 0, correlation_id: int = 0, client_id: bytes = b"wire"
) -> bytes:
    """A request (W-2.2)."""
    rest = client_id + body
    return HEADER.pack(12 + len(rest), b"MR", api, version, correlation_id, len(client_id)) + rest


class Connection:
    """A connection that a check owns."""

    def __init__(self, address: tuple[str, int], *, hello: bool = True) -> None:
        self.socket = socket.create_connection(address, WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.hello: Fields | None = self.call("Hello", "tests.wire", "0") if hello else None

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def write(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.socket.sendall(data)

    def send(self, api: str, *values: Any) -> int:
        """Sends a request and returns its correlation id."""
        return self.send_body(APIS[api].key, APIS[api].request.encode(values))

    def send_body(self, api: int, body: bytes, *, version: int = 0) -> int:
        """The same with an api and a body that may not exist."""
        correlation_id = next(_correlation_ids)
        self.write(request_frame(api, body, version=version, correlation_id=correlation_id))
        return correlation_id

    def receive(self) -> Response:
        """The next response, its header checked against W-2.1 and W-2.3."""
        head = self._exactly(16)
        length, magic, api, version, correlation_id, error_code = HEADER.unpack(head)
        if magic != b"MR" or length < 12 or (correlation_id and not api & RESPONSE_BIT):
            raise Broken(f"no response header: {head.hex(' ')}")
        body = self._exactly(length - 12)
        return Response(api, version, correlation_id, error_code, body)

    def answer(self, sent: int) -> Fields:
        """The next response, which answers the request `sent`. Raises `Refused`."""
        response = self.receive()
        name = NAMES.get(response.api & ~RESPONSE_BIT, f"api {response.api & ~RESPONSE_BIT}")
        if response.correlation_id != sent:
            raise Broken(f"{name} #{response.correlation_id} came where #{sent} was next")
        if response.error_code:
            raise Refused(name, response.error_code, REFUSAL.decode(response.body))
        return APIS[name].response.decode(response.body)

    def call(self, api: str, *values: Any) -> Fields:
        """Sends a request and returns its response. Raises `Refused`."""
        return self.answer(self.send(api, *values))

    def refusal(self, api: str, *values: Any) -> Refused:
        """The refusal of a request."""
        return self.refusal_of(self.send(api, *values))

    def refusal_of(self, sent: int) -> Refused:
        """The refusal of a request that was sent."""
        try:
            body = self.answer(sent)
        except Refused as refused:
            return refused
        raise AssertionError(f"the request was answered and not refused: {body}")

    def until_closed(self) -> bytes:
        """What the broker still sends until it closes."""
        rest, self._received = self._received, b""
        try:
            while data := self.socket.recv(1 << 16):
                rest += data
        except ConnectionResetError:
            pass
        return rest

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._received += data
        data, self._received = self._received[:size], self._received[size:]
        return data


class Text:
    """A connection of the text dialect."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, WAIT_S)
        self._lines = self.socket.makefile("rb")

    def __enter__(self) -> Text:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.close()
        self.socket.close()

    def type(self, line: str | bytes) -> None:
        """Sends one line."""
        self.socket.sendall((line if isinstance(line, bytes) else line.encode()) + b"\n")

    def line(self) -> str:
        """The next line; empty when the broker has closed."""
        return self._lines.readline().decode("utf-8", "surrogateescape").removesuffix("\n")

    def answer(self) -> list[str]:
        """The lines of the next answer (W-8.1)."""
        lines = [self.line()]
        while lines[-1] and lines[-1].split(" ")[0] not in ("OK", "ERR"):
            lines.append(self.line())
        return lines

    def ask(self, line: str | bytes) -> list[str]:
        """Sends one line and returns its answer."""
        self.type(line)
        return self.answer()
