"""Servers reduced to their system calls: the yardsticks the broker is held against.

Each is a blocking loop over one connection at a time in a process of its own, with no protocol
behind it: requests and responses have fixed sizes. What the broker needs beyond them is the cost
of being a broker. Run by the harness as `python -m benchmarks.bare KIND ...`;
prints its port when it listens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import child, python_module, read_line
from benchmarks.wire import Address

RECEIVE_BYTES = 1 << 18


def serve_file(
    sock: socket.socket, request_size: int, head_size: int, size: int, path: str
) -> None:
    """Responds to each request with `head_size` bytes and the next `size` bytes of a file."""
    head = bytes(head_size)
    buffer = bytearray(RECEIVE_BYTES)
    received = served = 0
    fd = os.open(path, os.O_RDONLY)
    try:
        rounds = os.fstat(fd).st_size // size
        out = sock.fileno()
        while got := sock.recv_into(buffer):
            received += got
            while served < received // request_size:
                sock.send(head, socket.MSG_MORE)
                position = served % rounds * size
                left = size
                while left:
                    sent = os.sendfile(out, fd, position, left)
                    position += sent
                    left -= sent
                served += 1
    finally:
        os.close(fd)


def append_file(
    sock: socket.socket, request_size: int, response_size: int, size: int, sync: bool, path: str
) -> None:
    """Appends the last `size` bytes of each request to a new file, then responds.

    With `sync` the file is made durable before each response.
    """
    response = bytes(response_size)
    buffer = memoryview(bytearray(request_size))
    batch = buffer[request_size - size :]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        filled = 0
        while got := sock.recv_into(buffer[filled:]):
            filled += got
            if filled == request_size:
                left = batch
                while left:
                    left = left[os.write(fd, left) :]
                if sync:
                    os.fdatasync(fd)
                sock.sendall(response)
                filled = 0
    finally:
        os.close(fd)
        Path(path).unlink()


def reply(sock: socket.socket, request_size: int, response_size: int) -> None:
    """Responds to each request with `response_size` bytes."""
    response = bytes(response_size)
    buffer = bytearray(RECEIVE_BYTES)
    received = answered = 0
    while got := sock.recv_into(buffer):
        received += got
        due = received // request_size - answered
        if due:
            sock.sendall(response * due)
            answered += due


@contextlib.contextmanager
def bare_server(log: Path, kind: str, *arguments: int | str) -> Iterator[tuple[Address, int]]:
    """A bare server in a process of its own: its address and its process id."""
    command = python_module("benchmarks.bare", kind, *map(str, arguments))
    with child(command, log=log) as process:
        yield ("127.0.0.1", int(read_line(process, log))), process.pid


def main(arguments: list[str]) -> None:
    kind, *rest = arguments
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(ConnectionError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if kind == "sendfile":
                    request_size, head_size, size = map(int, rest[:3])
                    serve_file(sock, request_size, head_size, size, rest[3])
                elif kind == "append":
                    request_size, response_size, size, sync = map(int, rest[:4])
                    append_file(sock, request_size, response_size, size, bool(sync), rest[4])
                else:
                    request_size, response_size = map(int, rest)
                    reply(sock, request_size, response_size)


if __name__ == "__main__":
    main(sys.argv[1:])
