"""millrace: `millrace serve` with default settings, and its own clients."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.broker import broker_environment
from benchmarks.checkout import ROOT
from benchmarks.machine import revision
from benchmarks.peers.contestant import FSYNC, PAGE_CACHE, Contestant, Way

_CONFIGS = {PAGE_CACHE: "os", FSYNC: "fsync"}


class Millrace(Contestant):
    """One broker. A durability is the setting `durability` of a topic."""

    name = "millrace"
    durabilities: ClassVar[Mapping[str, str]] = {
        PAGE_CACHE: "durability=os: acked when written to the page cache",
        FSYNC: "durability=fsync: acked after fdatasync, which appends that wait share",
    }
    writers = (
        Way("millrace send_many", "native", "send_many", main=True),
        Way("millrace send", "native", "send"),
        Way("millrace send_many, fsync", "native", "send_many", FSYNC),
        Way("millrace send, fsync", "native", "send", FSYNC),
    )
    readers = (
        Way("millrace Arrow", "native", "arrow", main=True),
        Way("millrace batches", "native", "batches"),
        Way("millrace values()", "native", "values"),
        Way("millrace async for", "native", "iterate"),
    )
    verifier = ("native", "values")
    paced = (
        Way("millrace", "native", "send", main=True),
        Way("millrace, fsync", "native", "send", FSYNC),
    )
    compresses = True
    has_acks = True
    has_groups = True

    def version(self) -> str:
        return f"{importlib.metadata.version('millrace')} at {revision(ROOT)}"

    def command(self) -> Sequence[str]:
        return self.session.checkout.serve

    def environment(self) -> Mapping[str, str]:
        return broker_environment(self.session, self.data, self.port)

    def create_topic(self, topic: str, *, partitions: int = 1, durability: str) -> None:
        from millrace.sync import Admin

        with Admin(self.servers) as admin:
            admin.create_topic(
                topic, partitions=partitions, configs={"durability": _CONFIGS[durability]}
            )

    def delete_topic(self, topic: str) -> None:
        from millrace.sync import Admin

        with Admin(self.servers) as admin:
            admin.delete_topic(topic)
