"""Segment files that move from one broker to another."""

from __future__ import annotations

import shutil
from pathlib import Path

from millrace import sync
from millrace_server.testing import BrokerThread

SEGMENT = "00000000000000000000.log"
MOVED: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"without a key"),
    (b"without a value", None),
    (b"", b"compressible " * 20),
]
"""Keys and values of the records that are written by each codec."""


def take_over(segment: Path, data: Path) -> None:
    """Puts a segment in the place of the log of a new topic, as `docs/kafka.md` says."""
    with BrokerThread(data=data) as broker, sync.Admin(broker.servers) as admin:
        admin.create_topic("moved", configs={"retention.ms": -1})
    partition = data / "moved-0"
    (partition / "checkpoint").unlink()
    shutil.copy(segment, partition / SEGMENT)


def records_in(data: Path) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of the topic, as a broker on the directory serves them."""
    with BrokerThread(data=data) as broker, sync.Consumer(broker.servers, "moved") as consumer:
        (end,) = consumer.end_offsets(("moved", 0)).values()
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < end:
            found += [(record.key, record.value) for record in consumer.getmany(timeout_ms=500)]
        return found
