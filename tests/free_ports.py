"""Ports for servers that a test starts later."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_PORTS = range(16_000, 32_000)
"""Below those that the kernel gives to connections (ip(7), `ip_local_port_range`): any connection
of the machine may take one of them before the server does."""


def free_ports(count: int = 1, *, host: str = "127.0.0.1") -> int:
    """The first of so many ports in a row on which nothing listens."""
    chosen = random.SystemRandom()
    while True:
        first = chosen.choice(_PORTS)
        with suppress(OSError), ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server((host, port)))
            return first
