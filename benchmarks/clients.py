"""Client-side records per second, beside confluent-kafka and aiokafka.

millrace's clients talk to millrace's broker; the peers talk to librdkafka's mock cluster, because
neither broker speaks the other's protocol. Each round is a fresh process, so CPU time is the
client's alone. Where the ratio by time and the ratio by CPU differ much, a broker is the
bottleneck, and the ratio by CPU is the client's.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.broker import RunningBroker, running_broker
from benchmarks.contestants.work import Work
from benchmarks.mock_cluster import mock_cluster
from benchmarks.processes import ProcessFailed, last_words, python_module
from benchmarks.results import Row, Skipped, compare
from benchmarks.samples import Sample, interleave
from benchmarks.session import Session

GROUP = "clients"
PEERS = {"confluent": "confluent_kafka", "aio": "aiokafka"}
CONFLUENT_PRODUCE = "confluent produce"
ROUND_TIMEOUT_S = 300
AIOKAFKA_SHARE = 5
"""aiokafka sends and receives this many times fewer records: its rounds would last too long."""
SENT_TOPIC = "sent"
"""One partition: how records without keys are spread over several differs between clients."""
READ_TOPIC = "read"


def run(session: Session) -> Iterator[Row]:
    """A row for each way to send and each way to receive."""
    peers = set() if session.is_paired else _installed_peers()
    missing = sorted(PEERS[name] for name in PEERS if name not in peers)
    if missing and not session.is_paired:
        names = " and ".join(missing)
        yield Skipped(GROUP, f"{names} not installed: pip install 'millrace[bench]' adds the peers")
    with ExitStack() as stack:
        topics = {SENT_TOPIC: 1, READ_TOPIC: session.scale.partitions}
        servers = stack.enter_context(mock_cluster(session.log, topics)) if peers else None
        broker = stack.enter_context(running_broker(session, "clients-data"))
        arena = Arena(session, broker, servers, peers)
        yield arena.send()
        yield arena.send_many()
        yield arena.per_record()
        yield arena.batches()


def _installed_peers() -> set[str]:
    """The peers that can run; without confluent-kafka there is no broker for any of them."""
    found = {name for name, module in PEERS.items() if importlib.util.find_spec(module)}
    return found if "confluent" in found else set()


class Arena:
    """Both brokers, and the contests that are held on them."""

    def __init__(
        self, session: Session, broker: RunningBroker, peer_servers: str | None, peers: set[str]
    ) -> None:
        scale = session.scale
        self._session = session
        self._peers = peers
        self._read_records = scale.log_records * scale.partitions
        servers = peer_servers or broker.servers
        self._sent = Work(servers, SENT_TOPIC, scale.records)
        self._read = Work(servers, READ_TOPIC, self._read_records, scale.partitions)
        self._servers = broker.servers
        with broker.connect() as connection:
            connection.create_topic(SENT_TOPIC, durability="os", retention_bytes=str(1 << 28))
            connection.create_topic(READ_TOPIC, partitions=scale.partitions, durability="os")
        session.say("clients: filling the topics to read")
        if peers:
            run_contestant(session, "confluent.fill", self._read)
        run_contestant(session, "streams.fill", self._ours(self._read))

    def send(self) -> Row:
        """One call per record."""
        return self._contest(
            "Send, one call per record",
            {
                "millrace send": ("streams.send", self._ours(self._sent)),
                CONFLUENT_PRODUCE: ("confluent.produce", self._sent),
                "aiokafka send": ("aio.send", self._fewer(self._sent)),
            },
            [("millrace send", CONFLUENT_PRODUCE, 1.0), ("millrace send", "aiokafka send", 5.0)],
        )

    def send_many(self) -> Row:
        """One call per thousand records."""
        return self._contest(
            "Send, one call per 1 000 records",
            {
                "millrace send_many": ("streams.send_many", self._ours(self._sent)),
                CONFLUENT_PRODUCE: ("confluent.produce", self._sent),
            },
            [("millrace send_many", CONFLUENT_PRODUCE, 2.5)],
        )

    def per_record(self) -> Row:
        """A record at a time."""
        return self._contest(
            "Receive, a record at a time, reading its value",
            {
                "millrace async for": ("streams.iterate", self._ours(self._read)),
                "confluent poll": ("confluent.poll", self._read),
                "aiokafka getone": ("aio.getone", self._fewer(self._read)),
            },
            [
                ("millrace async for", "confluent poll", 1.0),
                ("millrace async for", "aiokafka getone", 3.0),
            ],
        )

    def batches(self) -> Row:
        """Many records at a time."""
        return self._contest(
            "Receive, many records at a time",
            {
                "millrace batches, Arrow": ("streams.arrow_batches", self._ours(self._read)),
                "confluent consume(500)": ("confluent.consume", self._read),
                "aiokafka getmany": ("aio.getmany", self._fewer(self._read)),
            },
            [
                ("millrace batches, Arrow", "confluent consume(500)", 1.0),
                ("millrace batches, Arrow", "aiokafka getmany", None),
            ],
        )

    def _ours(self, work: Work) -> Work:
        return dataclasses.replace(work, servers=self._servers)

    def _fewer(self, work: Work) -> Work:
        return dataclasses.replace(work, records=max(work.records // AIOKAFKA_SHARE, 1))

    def _contest(
        self,
        title: str,
        contestants: Mapping[str, tuple[str, Work]],
        targets: Sequence[tuple[str, str, float | None]],
    ) -> Row:
        self._session.say(f"clients: {title}")
        runs: dict[str, Callable[[], Sample]] = {
            name: partial(run_contestant, self._session, function, work)
            for name, (function, work) in contestants.items()
            if function.partition(".")[0] in {"streams", *self._peers}
        }
        samples = interleave(runs, self._session.scale.rounds)
        return compare(GROUP, title, "records", samples, targets)


def run_contestant(session: Session, function: str, work: Work) -> Sample:
    """One round in a fresh process. Raises `ProcessFailed` when it ends without a sample."""
    return Sample(**told_by(session, "benchmarks.contestants", function, work.to_json()))


def told_by(session: Session, module: str, *arguments: str) -> Any:
    """The JSON in the last line that a module prints in a process of its own."""
    with session.log.open("a") as errors:
        done = subprocess.run(
            python_module(module, *arguments),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=ROUND_TIMEOUT_S,
            env={**os.environ, **session.checkout.environment},
        )
    if done.returncode:
        raise ProcessFailed(f"{module} {arguments[0]} failed: {last_words(session.log)}")
    return json.loads(done.stdout.splitlines()[-1])
