"""The text dialect as a target: lines to a real broker, which must answer each and live on.

Owns the broker's thread and the connection. Unlike the other decoders this one cannot be called
without the services behind it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from millrace_server.testing import BrokerThread
from tests.fuzz.targets import Target
from tests.hang_timeout import HANG_TIMEOUT_S

TEXT_LINE = "text line"
SEEDS = (
    b"HELP",
    b"TOPICS",
    b"DESCRIBE clicks",
    b"CREATE clicks 3",
    b"PRODUCE clicks 0 hello  world",
    b"PRODUCEKEY clicks 1 key value",
    b"FETCH clicks 0 0 5",
    b"OFFSETS clicks",
    b"GROUPS",
    b"LAG hourly",
    b"STATS millrace_requests",
)
_SENTINEL = b"OFFSETS .the.end"
_UNANSWERED = ("TAIL", "QUIT")


@contextmanager
def typed_lines() -> Iterator[Target]:
    """The target, for as long as its broker runs."""
    with (
        BrokerThread(partitions_max=20, topic={"durability": "os"}) as broker,
        socket.create_connection(("127.0.0.1", broker.port), timeout=HANG_TIMEOUT_S) as connection,
        connection.makefile("rwb") as lines,
    ):
        lines.write(b"HELP\n")

        def run(data: bytes) -> None:
            line = data.replace(b"\n", b" ")[:60_000]
            words = line.decode("utf-8", "surrogateescape").upper().split()
            if words and words[0] in _UNANSWERED:
                return
            lines.write(line + b"\n" + _SENTINEL + b"\n")
            lines.flush()
            while True:
                answer = lines.readline()
                assert answer.endswith(b"\n"), "the connection ended"
                assert b"\x1b" not in answer and b"UNKNOWN_SERVER_ERROR" not in answer, answer
                if answer.startswith(b"ERR ") and b"'.the.end'" in answer:
                    return

        yield Target(TEXT_LINE, run, SEEDS)
