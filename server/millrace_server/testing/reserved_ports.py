"""Ports that belong to the brokers of a test, also while a broker is not running.

A socket that is bound and does not listen keeps a port from being given to others. With
SO_REUSEADDR on both, a broker can bind the port and listen.
"""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class ReservedPorts:
    """`count` ports of the loopback address, until `release`."""

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                reserved = socket.socket()
                self._sockets.append(reserved)
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((HOST, 0))
        except OSError:
            self.release()
            raise

    @property
    def ports(self) -> list[int]:
        """The ports, in the order in which they were taken."""
        return [reserved.getsockname()[1] for reserved in self._sockets]

    def release(self) -> None:
        """Leaves the ports to others."""
        while self._sockets:
            self._sockets.pop().close()
