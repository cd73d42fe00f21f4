"""The last word: after all has healed every partition is probed and read from beginning to end.

Owns what must be there then. Where damage was done a typed error is an answer too; silence is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from millrace import Admin, Consumer, Producer
from millrace.errors import DeliveryTimeout, MillraceError, OffsetOutOfRange
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from millrace_wire.connection import ConnectionConfig, connect
from millrace_wire.errors import RequestTimedOut
from tests.sim.clients import Clients, Life
from tests.sim.consuming import look_up, note_records
from tests.sim.ledger import Where, partition_name
from tests.sim.lookups import Lookups
from tests.sim.options import PORT, ProducerStyle
from tests.sim.producing import Producing
from tests.sim.rot import Rot
from tests.sim.servers import Servers
from tests.sim.supervisor import Supervisor
from tests.sim.topics import Topic

T = TypeVar("T")
LIVENESS_S = 30.0
"""How long after healing each thing may take to work again, and a reading to get any further."""
_PASSING = (OffsetOutOfRange, DeliveryTimeout)
"""Not retriable, and yet another try may succeed: retention has taken the beginning meanwhile, or a
busy disk has delayed an ack."""
_PROBE = ProducerStyle("all", True, "none", 0, 4096)
_LOOKUPS = 3
_READ_BYTES_MIN = 1 << 16
_LONG_POLL_MS = 1_000
_LONG_POLL_SLACK_MS = 10_000
_LONG_STEP_MS = 3_600_000
_CALLER = ConnectionConfig(
    software="long poll",
    software_version="1",
    client_id="long poll",
    connect_timeout_ms=_LONG_POLL_SLACK_MS,
    receive_bytes_max=2 << 20,
)


class LastReading:
    """What is asked of the brokers at the end of a run, in one process."""

    def __init__(self, clients: Clients, life: Life, *, lookups: Lookups, rot: Rot) -> None:
        self._clients = clients
        self._life = life
        self._lookups = lookups
        self._rot = rot
        self._trace = clients.world.trace
        self._ledger = clients.ledger
        self._deadline = asyncio.timeout(None)
        self._found: dict[Where, dict[int, tuple[int, int]]] = {}

    async def probe(self) -> None:
        """New records are taken everywhere, by a client that saw nothing of the trouble."""
        for topic in self._clients.topics.present.values():
            for number in range(topic.partitions):
                if not self._rot.is_damaged(topic.servers.name, topic.name, number):
                    await self._within(f"probe {topic.name}-{number}", self._probe, topic, number)

    async def read_on_full_disk(self, broker: Supervisor) -> None:
        """What is durable is served by a broker that has started on a full disk."""
        for topic in self._clients.topics.at(broker):
            for where in topic.wheres:
                if not broker.has_partition(where):
                    # The broker died before it made the partition, and now has no room to.
                    continue
                name = f"read of {partition_name(where)} on a full disk"
                await self._within(name, self._read_partition, topic, where)

    async def wait_while_clock_steps(self, broker: Supervisor) -> None:
        """A long poll ends in time although the broker's wall clock goes back meanwhile."""
        topics = self._clients.topics.at(broker)
        if topics:
            await self._within("long poll", self._long_poll, broker, topics[0])

    async def read(self) -> None:
        """Reads all there is, and says what is wrong with it."""
        for servers in self._clients.topics.servers:
            if not self._rot.is_metadata_damaged(servers.name):
                await self._within(f"topics of {servers.name}", self._check_topics, servers)
        for topic in self._clients.topics.present.values():
            for where in topic.wheres:
                name = f"last read of {partition_name(where)}"
                if not self._rot.is_damaged(topic.servers.name, *where):
                    await self._within(name, self._read_partition, topic, where)
                else:
                    await self._read_damaged(topic, where)
        self._count_losses()

    async def _within(self, what: str, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Tries until it works, as long as it gets on."""
        last: MillraceError | None = None
        try:
            async with asyncio.timeout(LIVENESS_S) as self._deadline:
                while True:
                    try:
                        await work(*args)
                    except MillraceError as error:
                        last = error
                        self._trace.told(self._life.name, error)
                        if not error.retriable and not isinstance(error, _PASSING):
                            break
                        await asyncio.sleep(0.2)
                    else:
                        return
        except TimeoutError:
            pass
        self._trace.violation(f"{what}: not done within {LIVENESS_S} s: {last!r}")

    async def _probe(self, topic: Topic, number: int) -> None:
        producing = Producing(self._clients, self._life, _PROBE)
        settings = self._clients.options.producer(_PROBE)
        rng = self._life.rng.fork("probe")
        async with Producer(topic.servers.address, rng=rng, **settings) as producer:
            await producing.probe(producer, topic, number)

    async def _long_poll(self, broker: Supervisor, topic: Topic) -> None:
        where, host, clock = topic.wheres[0], broker.machine.host, broker.machine.clock
        settings, rng = self._clients.options.consumer(), self._life.rng.fork("long poll")
        async with Consumer(topic.servers.address, rng=rng, **settings) as consumer:
            consumer.assign([where], start="earliest")
            (end,) = (await consumer.end_offsets()).values()
        asked = FetchPartition(*where, -1, end, 1 << 20)
        request = FetchRequest(_LONG_POLL_MS, 1, 1 << 20, (asked,))
        dial = self._clients.world.network.connect
        connection = await connect(dial, (host, PORT), _CALLER)
        timeout_ms = _LONG_POLL_MS + _LONG_POLL_SLACK_MS
        call = connection.call(request, FetchResponse, timeout_ms=timeout_ms)
        polling = asyncio.ensure_future(call)
        await asyncio.sleep(_LONG_POLL_MS / 3000)
        clock.step(-_LONG_STEP_MS)
        try:
            await polling
        except RequestTimedOut as error:
            self._trace.violation(f"the wall clock went back during a long poll: {error}")
        finally:
            clock.step(0)
            connection.close()

    async def _check_topics(self, servers: Servers) -> None:
        topics, settings = self._clients.topics, self._clients.options.client()
        rng = self._life.rng.fork("admin")
        async with Admin(servers.address, rng=rng, **settings) as admin:
            found = await admin.list_topics()
            there = {topic.name: topic for topic in topics.at(servers)}
            missing = [name for name in there if name not in found]
            back = [n for n in found if n not in there and n not in topics.uncertain]
            if missing or back:
                self._trace.violation(f"topics are missing: {missing}, or back: {back}")
            for topic in there.values():
                partitions = len((await admin.describe_topic(topic.name)).partitions)
                if partitions != topic.partitions:
                    self._trace.violation(f"{topic} has {partitions} partitions")

    async def _read_damaged(self, topic: Topic, where: Where) -> None:
        """Reads what can be read, or is told why not."""
        if topic.servers.refusal is not None:
            return
        errors: list[MillraceError] = []
        try:
            async with asyncio.timeout(LIVENESS_S) as self._deadline:
                await self._read_partition(topic, where, errors=errors)
        except MillraceError as error:
            self._rot.note_corruption(self._life.name, error)
        except TimeoutError:
            if not errors:
                self._trace.violation(
                    f"{partition_name(where)} cannot be read, and no error says why"
                )
            self._rot.note_corruption(self._life.name, errors[-1])

    async def _read_partition(
        self,
        topic: Topic,
        where: Where,
        *,
        errors: list[MillraceError] | None = None,
    ) -> None:
        ledger = self._ledger
        found: dict[int, tuple[int, int]] = {}
        settings = self._clients.options.consumer()
        # A partition that is read batch by batch over a slow line takes longer than we wait.
        settings["max_partition_bytes"] = max(_READ_BYTES_MIN, settings["max_partition_bytes"])
        rng = self._life.rng.fork("last")
        async with Consumer(topic.servers.address, rng=rng, **settings) as consumer:
            process = ledger.process()
            ledger.assigned(process, [where])
            consumer.assign([where], start="earliest")
            (start,) = (await consumer.beginning_offsets()).values()
            (end,) = (await consumer.end_offsets()).values()
            now_ms = topic.servers.wall_ms_max()
            ledger.sought(process, where, start)
            consumer.seek(where, start)
            position = start
            while position < end:
                records = await consumer.getmany(1000, timeout_ms=1000)
                note_records(ledger, process, records)
                if records:
                    self._deadline.reschedule(asyncio.get_running_loop().time() + LIVENESS_S)
                error = consumer.health().last_error
                if not records and errors is not None and error is not None:
                    errors.append(error)
                for record in records:
                    if record.offset != position:
                        self._trace.violation(f"{where}: {record.offset} follows {position - 1}")
                    position = record.offset + 1
                    number = ledger.number_of(record.value)
                    found[record.offset] = record.timestamp_ms, number
            ledger.read_to_end(where, start, end)
            self._found[where] = found
            self._check_start(topic, where, start, now_ms=now_ms)
            # Retention by time goes on, and what it takes is not found any more.
            for _ in range(_LOOKUPS if topic.is_whole else 0):
                time_ms = now_ms + self._life.rng.randint(-30_000, 8_000)
                answer = await look_up(
                    consumer, where, time_ms, lookups=self._lookups, ledger=ledger
                )
                if answer is None:
                    self._trace.sometimes("a time later than all was looked up")
            for sentence in self._lookups.check(where, found):
                self._trace.violation(sentence)

    def _check_start(self, topic: Topic, where: Where, start: int, *, now_ms: int) -> None:
        """Retention has taken what it may, and no more."""
        if topic.is_whole:
            if start:
                self._trace.violation(f"{where} starts at {start}, and nothing may be removed")
        elif "retention.bytes" in topic.configs:
            kept_bytes = int(topic.configs["retention.bytes"])
            left_bytes = topic.servers.log_bytes(where)
            if start and left_bytes < kept_bytes:
                self._trace.violation(f"{where}: {left_bytes} bytes are left of {kept_bytes}")
        else:
            since_ms = now_ms - int(topic.configs["retention.ms"])
            for text in self._ledger.taken_too_early(where, start_offset=start, since_ms=since_ms):
                self._trace.violation(text)

    def _count_losses(self) -> None:
        """What was lost as it may be: it shows that the run would have seen other losses too."""
        topics = self._clients.topics.present
        kept = {number for found in self._found.values() for _, number in found.values()}
        for number, written in enumerate(self._ledger.written):
            if written.where not in self._found or number in kept:
                continue
            topic = topics[written.where[0]]
            if written.is_acked and topic.is_whole:
                if not written.is_acked_with_offset:
                    self._trace.sometimes("a record sent with acks=0 was lost")
                elif topic.is_forgetful:
                    self._trace.sometimes("an acked record was lost with durability=os")
