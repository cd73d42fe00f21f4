"""A connection that shows what passes over it.

Owns the socket, the correlation ids and the transcript. Blocking, on purpose: a person, or a
script, says one thing at a time. What the bytes mean is `millrace_protocol.dissect`.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator

from millrace_cli.exchange import Passed
from millrace_cli.paint import paint, wants_colour
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

PASSED_BYTES_MAX = 64 << 20
"""Bytes of the transcript that are kept for `save`; the oldest are forgotten."""
_READ_BYTES = 1 << 16
_QUIET_S = 0.2
"""A text answer says nowhere that it is whole: it has ended when nothing came for so long."""


class NoAnswer(Exception):
    """The broker closed the connection, or said nothing in time."""


class WireSession:
    """Connects when it has something to send, and again after the broker has closed."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float, client_id: str) -> None:
        self.passed: list[Passed] = []
        """What went over the wire, oldest first."""
        self.faults = 0
        """Things the broker sent that were malformed."""
        self._address = address
        self._timeout_s = timeout_s
        self._client_id = client_id.encode()
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._unfinished = bytearray()
        self._correlation_id = 0

    def connect(self) -> bool:
        """Connects if there is no connection; whether it is a new one. Raises `OSError`."""
        if self._socket is not None:
            return False
        self._socket = socket.create_connection(self._address, timeout=self._timeout_s)
        self._received.clear()
        self._unfinished.clear()
        return True

    def close(self) -> None:
        """Disconnects."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api: int, version: int, request: Message, *, wait_ms: int = 0) -> None:
        """Sends a request and shows it, then its answer, which may take `wait_ms` longer.

        Raises `NoAnswer`, and `ValueError` for a value that does not fit its field.
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
        if _is_unanswered(frame):
            print("nobody answers a produce with acks=0", flush=True)
            return
        for answer in self._answers(self._timeout_s + wait_ms / 1000):
            if _correlation_id(answer) == wanted:
                return

    def send_raw(self, data: bytes) -> None:
        """Sends bytes as they are, and shows as many answers as whole frames were sent."""
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
            # What is no frame gets one refusal, and then the connection is closed.
            frame = bytes(self._unfinished[: size or None])
            del self._unfinished[: len(frame)]
            expected += not _is_unanswered(frame)
        if self._unfinished:
            print("not a whole frame yet: the broker waits for more", flush=True)
        if not expected:
            return
        for _ in self._answers(self._timeout_s):
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
            raise NoAnswer(f"the connection is gone: {error.strerror}") from None
        self._note(Passed(">", data))

    def _answers(self, timeout_s: float) -> Iterator[bytes]:
        """The frames that come, shown."""
        deadline = time.monotonic() + timeout_s
        while True:
            size = frame_size(self._received)
            if size is None:
                self._read(deadline)
                continue
            frame = bytes(self._received[: size or None])
            del self._received[: len(frame)]
            self._note(Passed("<", frame))
            yield frame

    def _show_text(self) -> None:
        self._read(time.monotonic() + self._timeout_s)
        while True:
            try:
                self._read(time.monotonic() + _QUIET_S)
            except NoAnswer:
                break
        text = bytes(self._received)
        self._received.clear()
        self._note(Passed("<", text))

    def _read(self, deadline: float) -> None:
        connection = self._socket
        if connection is None:
            raise NoAnswer("the broker closed the connection")
        try:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(_READ_BYTES)
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except OSError as error:
            self.close()
            raise NoAnswer(f"the connection is gone: {error.strerror}") from None
        if not data:
            self.close()
            if self._received:
                self._note(Passed("<", bytes(self._received)))
                self._received.clear()
            raise NoAnswer("the broker closed the connection")
        self._received += data

    def _note(self, passed: Passed) -> None:
        arrow = "-->" if passed.direction == ">" else "<--"
        colour = wants_colour()
        print(f"{arrow} {len(passed.data)} bytes")
        remark = ""
        for span in dissect_frames(passed.data):
            remark = remark or span.name
            lines = render([span])
            for line in paint(lines) if colour else lines:
                print(line)
            if passed.direction == "<":
                self.faults += sum(1 for _ in span.faults())
        sys.stdout.flush()
        self.passed.append(Passed(passed.direction, passed.data, remark))
        while sum(len(one.data) for one in self.passed[1:]) > PASSED_BYTES_MAX:
            del self.passed[0]


def _correlation_id(frame: bytes) -> int | None:
    """Of a response; None for what is none."""
    try:
        return read_response_header(frame).correlation_id
    except WireError:
        return None


def _is_unanswered(frame: bytes) -> bool:
    """Whether it is a produce with acks 0, the one request without an answer (W-4.3.2)."""
    try:
        header = read_request_header(frame)
    except WireError:
        return False
    acks = frame[header.body_position : header.body_position + 2]
    return header.api == ApiKey.PRODUCE and acks == b"\0\0"
