"""Kill -9 in a consumer group: a member of it, in processes of their own, and its broker.

Owns the two runs and what each of them saw. The flights of New York are numbered in the order in
which they are sent, keyed by carrier; the number is the value.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace_cli.demo.flights import flight_records, flights_file
from tests.crash.kill_rounds import BrokerProcess
from tests.hang_timeout import HANG_TIMEOUT_S

TOPIC = "flights"
GROUP = "departures"
PARTITIONS = 4
"""As the demo has; every one has carriers among the first flights of the year."""
CHUNK_FLIGHTS = 200
AHEAD_FLIGHTS = 1_000
RECORDS_OF_A_COMMIT = 5
COMMITS_BEFORE_A_KILL = 100
LINE_BYTES_MAX = 1 << 20
SETTINGS = {
    "MILLRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_OFFSETS_TOPIC_PARTITIONS": "3",
}


class Processed(NamedTuple):
    """One record that a member was done with, at a time that all processes share."""

    at_ns: int
    member: int
    partition: int
    offset: int
    key: str
    number: int


class Member:
    """A process of `tests.crash.group_member`, and the lines it printed."""

    def __init__(self, number: int, progress: asyncio.Condition) -> None:
        self._number = number
        self._progress = progress
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self.processed: list[Processed] = []
        self.committed: dict[int, int] = {}
        """By partition, as far as it has printed them."""
        self.commits = 0
        self.is_held = False
        """Whether it has processed what it will not commit."""

    async def start(self, servers: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.crash.group_member", servers, GROUP, TOPIC),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        self._listening = asyncio.create_task(self._listen())

    async def hold(self) -> None:
        """Tells it to process once more and not to commit that."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"hold\n")
        await self._process.stdin.drain()

    async def kill(self) -> None:
        """SIGKILL, if it still runs; returns when all its output is read."""
        if self._process is None or self._listening is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._listening
        await self._process.wait()

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            # A line that the kill has cut is not a thing done.
            if line.endswith(b"\n"):
                self._note(*json.loads(line))
            async with self._progress:
                self._progress.notify_all()

    def _note(self, what: str, at_ns: int, rows: list[list[Any]]) -> None:
        if what == "committed":
            self.committed |= dict(rows)
            self.commits += 1
        else:
            self.processed += [Processed(at_ns, self._number, *row) for row in rows]
            self.is_held = what == "held"


@dataclass
class MemberKilled:
    """What was processed, by whom, and what the killed one had not committed."""

    sent: list[str]
    """The key of each flight, by number."""
    processed: list[Processed]
    """In the order of time."""
    window: set[int]
    """Numbers of the flights that the killed one processed after its last commit."""

    def counts(self) -> Counter[int]:
        """How often each flight was processed."""
        return Counter(one.number for one in self.processed)

    def out_of_order(self) -> list[Processed]:
        """Records processed before the record that precedes them in their key was."""
        before: dict[int, int | None] = {}
        last: dict[str, int] = {}
        for number, key in enumerate(self.sent):
            before[number] = last.get(key)
            last[key] = number
        done: set[int | None] = {None}
        wrong: list[Processed] = []
        for one in self.processed:
            if before[one.number] not in done:
                wrong.append(one)
            done.add(one.number)
        return wrong


async def kill_a_member(data: Path) -> MemberKilled:
    """Three share the flights; one dies with a batch that it has not committed, a fourth joins."""
    progress = asyncio.Condition()
    members = [Member(number, progress) for number in range(4)]
    first, fourth = members[0], members[-1]

    def done() -> set[int]:
        return {one.number for member in members for one in member.processed}

    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        _flights_topic(data) as broker,
        AsyncExitStack() as stack,
    ):
        for member in members:
            stack.push_async_callback(member.kill)
        producer = await stack.enter_async_context(Producer(broker.servers, linger_ms=1))
        flights = Flights(producer, progress, done)
        for member in members[:-1]:
            await member.start(broker.servers)
        await flights.send_until(lambda: all(member.commits for member in members[:-1]))
        await first.hold()
        await flights.send_until(lambda: first.is_held)
        await first.kill()
        await fourth.start(broker.servers)
        await flights.send_until(lambda: fourth.commits > 0)
        await flights.all_done()
    window = {
        one.number for one in first.processed if one.offset >= first.committed.get(one.partition, 0)
    }
    processed = sorted(one for member in members for one in member.processed)
    return MemberKilled(flights.keys, processed, window)


class Flights:
    """Sends flights, each with its number, never far ahead of what `done` says was processed."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        progress: asyncio.Condition,
        done: Callable[[], set[int]],
    ) -> None:
        self._producer = producer
        self._progress = progress
        self._done = done
        self._chunks = flight_records(flights_file(), limit=None, chunk_rows=CHUNK_FLIGHTS)
        self.keys: list[str] = []
        """The carrier of each flight that was sent, by number."""

    async def send_until(self, happened: Callable[[], bool]) -> None:
        """Sends on and on until `happened`."""
        while not happened():
            chunk = next(self._chunks)
            numbers = range(len(self.keys), len(self.keys) + len(chunk.keys))
            self.keys += [(key or b"").decode() for key in chunk.keys]
            await self._producer.send_many(
                TOPIC, [b"%d" % number for number in numbers], keys=chunk.keys
            )
            async with self._progress:
                await self._progress.wait_for(
                    lambda: happened() or len(self.keys) - len(self._done()) < AHEAD_FLIGHTS
                )

    async def all_done(self) -> None:
        """Returns when every flight sent was processed."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self._done()) == len(self.keys))


@dataclass
class BrokerKills:
    """What was processed and committed while brokers were killed."""

    sent: int = 0
    processed: set[int] = field(default_factory=set)
    states: list[str] = field(default_factory=list)
    """The group's state, as the broker told it, as each began to be killed; and at the end."""
    commits_in_flight: list[int] = field(default_factory=list)
    """Commits without an answer at the moment of each kill."""
    commits: int = 0
    lost: list[str] = field(default_factory=list)
    """Partitions that were committed further, and acked, than the broker knew after a start."""


class Committer:
    """A member in this process that commits after every few records, and notes what is acked."""

    def __init__(self, servers: str, progress: asyncio.Condition, outcome: BrokerKills) -> None:
        self._progress = progress
        self._outcome = outcome
        self._task: asyncio.Task[None] | None = None
        self.is_committing = False
        self.acked: dict[TopicPartition, int] = {}
        self.stall: asyncio.Event | None = None
        """While set to an event: a revocation is not over before it."""
        self.is_revoking = False
        self.consumer = Consumer(
            servers,
            TOPIC,
            group=GROUP,
            assignors=["range"],
            auto_commit=False,
            on_revoked=self._on_revoked,
            session_timeout_ms=20_000,
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=50,
            retry_backoff_ms=10,
            retry_backoff_max_ms=100,
        )

    async def start(self) -> None:
        await self.consumer.start()
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Ends it; raises what it died of."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.consumer.close()

    async def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        if self.stall is not None and partitions:
            self.is_revoking = True
            await self._tell()
            await self.stall.wait()

    async def _follow(self) -> None:
        while True:
            records = await self.consumer.getmany(RECORDS_OF_A_COMMIT)
            self._outcome.processed.update(int(record.value or b"") for record in records)
            self.is_committing = True
            await self._tell()
            outcomes = await self.consumer.commit()
            self.is_committing = False
            for where, commit in outcomes.items():
                if commit.is_committed:
                    self.acked[where] = max(self.acked.get(where, 0), commit.offset)
                    self._outcome.commits += 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._progress:
            self._progress.notify_all()


async def kill_the_broker(data: Path) -> BrokerKills:
    """Kills it in a storm of commits, in the middle of a rebalance, and in a storm again."""
    progress = asyncio.Condition()
    outcome = BrokerKills()
    async with (
        asyncio.timeout(HANG_TIMEOUT_S),
        _flights_topic(data) as broker,
        AsyncExitStack() as stack,
    ):
        producer = await stack.enter_async_context(Producer(broker.servers, linger_ms=1))
        flights = Flights(producer, progress, lambda: outcome.processed)
        members = [Committer(broker.servers, progress, outcome) for _ in range(4)]
        three, fourth = members[:-1], members[-1]
        for member in three:
            await member.start()
            stack.push_async_callback(member.close)

        async def storm() -> None:
            wanted = outcome.commits + COMMITS_BEFORE_A_KILL
            await flights.send_until(
                lambda: (
                    outcome.commits >= wanted
                    and all(member.consumer.assignment() for member in three)
                    and sum(member.is_committing for member in members) > 1
                )
            )
            await _kill_and_compare(broker, members, outcome)

        await storm()
        await flights.all_done()

        released = asyncio.Event()
        for member in three:
            member.stall = released
        await fourth.start()
        stack.push_async_callback(fourth.close)
        await flights.send_until(lambda: any(member.is_revoking for member in three))
        async with Admin(broker.servers) as admin:
            outcome.states.append((await admin.describe_group(GROUP)).state)
        await _kill_and_compare(broker, members, outcome)
        for member in three:
            member.stall = None
        released.set()
        await flights.send_until(
            lambda: all(len(member.consumer.assignment()) == 1 for member in members)
        )

        await storm()
        await flights.all_done()
        async with Admin(broker.servers) as admin:
            outcome.states.append((await admin.describe_group(GROUP)).state)
    outcome.sent = len(flights.keys)
    return outcome


async def _kill_and_compare(
    broker: BrokerProcess, members: list[Committer], outcome: BrokerKills
) -> None:
    """Kills the broker, starts it, and asks it at once for every commit that was acked."""
    outcome.commits_in_flight.append(sum(member.is_committing for member in members))
    await broker.kill()
    acked: dict[TopicPartition, int] = {}
    for member in members:
        for where, offset in member.acked.items():
            acked[where] = max(acked.get(where, 0), offset)
    await broker.start()
    async with Admin(broker.servers) as admin:
        known = await admin.list_group_offsets(GROUP)
    for where, offset in acked.items():
        if where not in known or known[where].offset < offset:
            outcome.lost.append(f"{where}: {offset} was acked, and {known.get(where)} is known")


@asynccontextmanager
async def _flights_topic(data: Path) -> AsyncIterator[BrokerProcess]:
    """A broker with the topic; killed at the end."""
    broker = BrokerProcess(data, settings=SETTINGS)
    await broker.start()
    try:
        async with Admin(broker.servers) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield broker
    finally:
        await broker.kill()
