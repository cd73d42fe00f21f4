"""A server of HTTP whose answers a test writes byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

OK = b"HTTP/1.1 200 OK\r\n"


class WebServer:
    """Answers each request with what `answer` sends, and closes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        """The first line of each."""
        self.answer: Callable[[socket.socket], None] = lambda _: None
        self._asked = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{self.host}/keys"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def says(self, *parts: bytes) -> None:
        """Answers with the same bytes from now on."""
        self.answer = lambda connection: connection.sendall(b"".join(parts))

    def asked(self, times: int) -> None:
        """Returns when it has been asked so often. Blocks."""
        with self._asked:
            self._asked.wait_for(lambda: len(self.requests) >= times)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                received = b""
                while b"\r\n\r\n" not in received and (more := connection.recv(4096)):
                    received += more
                with self._asked:
                    self.requests.append(received.partition(b"\r\n")[0])
                    self._asked.notify_all()
                self.answer(connection)
