"""A connection that prints its bytes, annotated.

Owns the socket, the correlation ids and the transcript. Blocking, because a user or a script sends
one request at a time. `millrace_protocol.dissect` explains the bytes.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Iterator

from millrace_cli.colours import paint, wants_colour
from millrace_cli.formats.exchange import Transfer
from millrace_protocol.api import ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.dissect import dissect_frames, frame_size, render
from millrace_protocol.dissect.frames import is_text
from millrace_protocol.errors import WireError
from millrace_protocol.framing import (
    read_request_header,
    read_response_header,
    request_frame,
)
from millrace_protocol.schema import Message

TRANSCRIPT_BYTES_MAX = 64 << 20
"""Bytes of the transcript for `save`; the oldest frames are dropped."""
_READ_BYTES = 1 << 16
_QUIET_S = 0.2
"""A text response has no length. It ends when no bytes arrive for so long."""


class NoResponse(Exception):
    """The broker closed the connection, or did not respond in time."""


class WireSession:
    """Connects before it sends, and again after the broker has closed the connection."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout_s: float,
        client_id: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.transcript: list[Transfer] = []
        """The transfers, oldest first."""
        self.faults = 0
        """Malformed parts of the broker's frames."""
        self._address = address
        self._timeout_s = timeout_s
        self._tls = tls
        self._client_id = client_id.encode()
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._unfinished = bytearray()
        self._correlation_id = 0

    def connect(self) -> bool:
        """Connects if needed; returns whether the connection is new. Raises `OSError`."""
        if self._socket is not None:
            return False
        plain = socket.create_connection(self._address, timeout=self._timeout_s)
        try:
            self._socket = self._with_tls(plain)
        except OSError:
            plain.close()
            raise
        self._received.clear()
        self._unfinished.clear()
        return True

    def _with_tls(self, plain: socket.socket) -> socket.socket:
        if self._tls is None:
            return plain
        return self._tls.wrap_socket(plain, server_hostname=self._address[0])

    def close(self) -> None:
        """Disconnects."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def request(self, api: int, version: int, request: Message, *, wait_ms: int = 0) -> None:
        """Sends and prints a request, then its response, which may take `wait_ms` longer.

        Raises `NoResponse`, and `ValueError` for a value that does not fit its field.
        """
        frame = request_frame(
            api=api,
            version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
            body=encode(request, version),
        )
        wanted = self._correlation_id
        self._correlation_id += 1
        self._send(frame)
        if _has_no_response(frame):
            print("a produce request with acks=0 has no response", flush=True)
            return
        for response in self._responses(self._timeout_s + wait_ms / 1000):
            if _correlation_id(response) == wanted:
                return

    def send_raw(self, data: bytes) -> None:
        """Sends bytes unchanged, and prints a response for each whole frame."""
        self._send(data)
        self._unfinished += data
        expected = 0
        while self._unfinished:
            if is_text(self._unfinished[0]):
                if b"\n" in self._unfinished:
                    self._unfinished.clear()
                    self._show_text()
                return
            size = frame_size(self._unfinished)
            if size is None:
                break
            # Bytes that are not a frame get one error, and the broker closes the connection.
            frame = bytes(self._unfinished[: size or None])
            del self._unfinished[: len(frame)]
            expected += not _has_no_response(frame)
        if self._unfinished:
            print("the frame is not complete: the broker waits for the rest", flush=True)
        if not expected:
            return
        for _ in self._responses(self._timeout_s):
            expected -= 1
            if not expected:
                return

    def _send(self, data: bytes) -> None:
        connection = self._socket
        assert connection is not None
        try:
            connection.sendall(data)
        except OSError as error:
            self.close()
            raise NoResponse(f"the connection is lost: {error.strerror}") from None
        self._record(Transfer(">", data))

    def _responses(self, timeout_s: float) -> Iterator[bytes]:
        """Receives and prints frames."""
        deadline = time.monotonic() + timeout_s
        while True:
            size = frame_size(self._received)
            if size is None:
                self._read(deadline)
                continue
            frame = bytes(self._received[: size or None])
            del self._received[: len(frame)]
            self._record(Transfer("<", frame))
            yield frame

    def _show_text(self) -> None:
        self._read(time.monotonic() + self._timeout_s)
        while True:
            try:
                self._read(time.monotonic() + _QUIET_S)
            except NoResponse:
                break
        text = bytes(self._received)
        self._received.clear()
        self._record(Transfer("<", text))

    def _read(self, deadline: float) -> None:
        connection = self._socket
        if connection is None:
            raise NoResponse("the broker closed the connection")
        try:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(_READ_BYTES)
        except TimeoutError:
            raise NoResponse("no response in time") from None
        except OSError as error:
            self.close()
            raise NoResponse(f"the connection is lost: {error.strerror}") from None
        if not data:
            self.close()
            if self._received:
                self._record(Transfer("<", bytes(self._received)))
                self._received.clear()
            raise NoResponse("the broker closed the connection")
        self._received += data

    def _record(self, transfer: Transfer) -> None:
        arrow = "-->" if transfer.direction == ">" else "<--"
        colour = wants_colour()
        print(f"{arrow} {len(transfer.data)} bytes")
        remark = ""
        for span in dissect_frames(transfer.data):
            remark = remark or span.name
            lines = render([span])
            for line in paint(lines) if colour else lines:
                print(line)
            if transfer.direction == "<":
                self.faults += sum(1 for _ in span.faults())
        sys.stdout.flush()
        self.transcript.append(Transfer(transfer.direction, transfer.data, remark))
        while sum(len(one.data) for one in self.transcript[1:]) > TRANSCRIPT_BYTES_MAX:
            del self.transcript[0]


def _correlation_id(frame: bytes) -> int | None:
    """The correlation id of a response; None for other bytes."""
    try:
        return read_response_header(frame).correlation_id
    except WireError:
        return None


def _has_no_response(frame: bytes) -> bool:
    """Whether the frame is a produce with acks 0, the only request without a response (W-4.3.2)."""
    try:
        header = read_request_header(frame)
    except WireError:
        return False
    acks = frame[header.body_position : header.body_position + 2]
    return header.api == ApiKey.PRODUCE and acks == b"\0\0"
