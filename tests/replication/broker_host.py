"""A broker of the simulation: its processes, connections and partitions on one disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millrace_protocol.errors import ErrorCode
from millrace_server.replication.fetch_schedule import FetchSchedule
from millrace_server.replication.fetch_session import FetchSession, SessionRefused
from millrace_server.replication.leader import PartitionLeader
from millrace_server.replication.messages import (
    BrokerKey,
    FetchRequest,
    FetchResult,
    PartitionKey,
    Records,
)
from millrace_server.token_bucket import TokenBucket
from tests.replication.connection import Connection, Results
from tests.replication.controller import Image
from tests.replication.partition_host import CONFIG, PartitionHost
from tests.replication.replica_log import ReplicaLog

if TYPE_CHECKING:
    from tests.replication.world import World

RECONNECT_MS = 100
RESPONSE_TIMEOUT_MS = 3_000
ENTRY_BYTES = 100


class BrokerHost:
    """One process after another. A paused process does everything when it is resumed."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.directory = broker_id
        self.logs = {key: ReplicaLog(is_synced=world.is_synced) for key in world.keys}
        self.saved_high_watermarks = dict.fromkeys(world.keys, 0)
        self.is_lossy = False
        """Whether the disk has lost something since the last registration."""
        self.is_paused = False
        self.broker_epoch = -1
        self.image = Image(-1, {}, {})
        self.partitions: dict[PartitionKey, PartitionHost] = {}
        self.throttle: TokenBucket | None = None
        self._is_alive = False
        self._is_clean = True
        self._life = 0
        self._held: list[Callable[[], None]] = []
        self._sessions: dict[Connection, FetchSession] = {}
        self._schedules: dict[int, FetchSchedule] = {}
        self._connections: dict[int, Connection] = {}
        self._alarm_ms: int | None = None

    @property
    def is_running(self) -> bool:
        return self._is_alive and not self.is_paused

    @property
    def is_alive(self) -> bool:
        return self._is_alive

    # Processes

    def start(self) -> None:
        """Starts a process on what is on the disk; it registers as soon as it can."""
        self._is_alive = True
        self.broker_epoch = -1
        self.image = Image(-1, {}, {})
        rate = self.world.rng.choice((None, None, 2_000))
        self.throttle = None if rate is None else TokenBucket(rate, now_ms=self.world.now_ms)
        for key, log in self.logs.items():
            log.recover()
            self.partitions[key] = PartitionHost(self, key, log)
        self._register()

    def _register(self) -> None:
        epoch = self.world.register(self, is_clean=self._is_clean)
        if epoch is None:
            self.later(300, self._register)
        else:
            self.broker_epoch = epoch
            self._is_clean = False

    def kill(self) -> None:
        """Ends the process; what it has written stays, but the controller cannot know that."""
        self._life += 1
        self.is_lossy |= self._is_alive and not self.world.is_synced
        self._is_alive = self.is_paused = False
        for key, partition in self.partitions.items():
            if self.world.rng.randrange(2):
                self.saved_high_watermarks[key] = partition.high_watermark
        self.partitions = {}
        self._held.clear()
        self._sessions.clear()
        self._schedules.clear()
        self._connections.clear()
        self._alarm_ms = None

    def stop(self) -> None:
        """Ends the process in order."""
        for log in self.logs.values():
            log.recover()
        was_lossy = self.is_lossy
        self.kill()
        self.is_lossy = was_lossy
        self._is_clean = True

    def cut_power(self) -> None:
        """Ends the process, and takes with it what was not synced."""
        self.kill()
        for key, log in self.logs.items():
            log.lose_what_is_not_durable(self.world.rng.choice((0, 0, 1, 3)))
            saved = min(self.saved_high_watermarks[key], log.end_offset)
            self.saved_high_watermarks[key] = max(saved, log.start_offset)

    def wipe(self) -> None:
        """Ends the process, and replaces the disk by an empty one."""
        self.kill()
        self.directory += 100
        self.is_lossy = True
        self.world.lost_logs += self.logs.items()
        self.logs = {key: ReplicaLog(is_synced=self.world.is_synced) for key in self.world.keys}
        self.saved_high_watermarks = dict.fromkeys(self.world.keys, 0)

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            self.run(call)

    # Events

    def run(self, call: Callable[[], None]) -> None:
        """Runs an event in the process there is, and all that follows from it."""
        if not self._is_alive:
            return
        if self.is_paused:
            self._held.append(call)
            return
        call()
        self._go_on()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Runs an event of this process later, unless the process has ended."""
        life = self._life
        self.world.later(delay_ms, lambda: self.run(call) if life == self._life else None)

    def _go_on(self) -> None:
        if not self._is_alive:
            return
        for connection, session in list(self._sessions.items()):
            while session.is_due(self.world.now_ms):
                self._respond(connection, session)
        for leader_id, schedule in list(self._schedules.items()):
            self._request(leader_id, schedule)
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadlines = [session.deadline_ms() for session in self._sessions.values()]
        deadlines += [schedule.deadline_ms() for schedule in self._schedules.values()]
        deadlines += [p.leader.deadline_ms() for p in self.partitions.values() if p.leader]
        due_ms = min((moment for moment in deadlines if moment is not None), default=None)
        if due_ms is None or (self._alarm_ms is not None and self._alarm_ms <= due_ms):
            return
        self._alarm_ms = due_ms

        def ring() -> None:
            if self._alarm_ms == due_ms:
                self._alarm_ms = None
                for partition in self.partitions.values():
                    if partition.leader is not None:
                        partition.carry_out(partition.leader.on_deadline(self.world.now_ms))

        self.later(max(1, due_ms - self.world.now_ms), ring)

    def on_image(self, image: Image) -> None:
        """Takes the image over, unless it is an older one."""
        registration = image.brokers.get(self.broker_id)
        if image.version <= self.image.version or registration is None:
            return
        if registration.epoch != self.broker_epoch:
            return
        self.image = image
        for partition in self.partitions.values():
            partition.on_image()

    # The leader's side of connections

    def find(self, key: PartitionKey) -> PartitionLeader | ErrorCode:
        return self.partitions[key].leader or ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_fetch_request(self, connection: Connection, request: FetchRequest) -> None:
        session = self._sessions.get(connection)
        if session is None:
            if not request.is_first:
                connection.is_broken = True
                return
            session = FetchSession(connection.number, self.find, CONFIG, self.throttle)
            self._sessions[connection] = session
        now_ms = self.world.now_ms
        try:
            effects = session.on_request(request, now_ms)
        except SessionRefused:
            connection.is_broken = True
            del self._sessions[connection]
            return
        for key, effect in effects:
            self.partitions[key].carry_out([effect])

    def _respond(self, connection: Connection, session: FetchSession) -> None:
        rng, now_ms = self.world.rng, self.world.now_ms
        room = rng.choice((1, 2, 5))
        results: Results = []
        while (found := session.next_result(now_ms)) is not None:
            key, result = found
            entries = self._read(key, result)
            if entries is not None:
                if room <= 0:
                    session.put_back(key)
                    break
                entries = entries[:room]
                room -= len(entries)
                session.on_sent(key, len(entries) * ENTRY_BYTES, now_ms)
                assert isinstance(result.outcome, Records)
                outcome = Records(result.outcome.offset, entries)
                result = replace(result, outcome=outcome)
            results.append((key, result))
        for key, effect in session.end_response(now_ms):
            self.partitions[key].carry_out([effect])
        connection.send_response(results)
        if connection.is_broken:
            self._sessions.pop(connection, None)

    def _read(self, key: PartitionKey, result: FetchResult) -> tuple[object, ...] | None:
        """The entries of a result with records, None if it has none."""
        log = self.logs[key]
        if isinstance(result.outcome, Records) and result.outcome.offset < log.end_offset:
            return log.read(result.outcome.offset, 5)
        return None

    def on_appended(self, key: PartitionKey) -> None:
        for session in self._sessions.values():
            session.on_appended(key)

    def on_offsets_moved(self, key: PartitionKey) -> None:
        for session in self._sessions.values():
            session.on_offsets_moved(key, self.world.now_ms)

    def on_leader_changed(self, key: PartitionKey) -> None:
        for session in self._sessions.values():
            session.on_leader_changed(key)

    # The follower's side of connections

    def schedule(self, leader_id: int) -> FetchSchedule:
        """What this broker asks another one for."""
        if leader_id not in self._schedules:
            key = BrokerKey(self.broker_id, self.broker_epoch)
            self._schedules[leader_id] = FetchSchedule(key, CONFIG)
        return self._schedules[leader_id]

    def _request(self, leader_id: int, schedule: FetchSchedule) -> None:
        while (request := schedule.next_request(self.world.now_ms)) is not None:
            connection = self._connections.get(leader_id)
            if connection is None:
                connection = self.world.connect(self.broker_id, leader_id)
                self._connections[leader_id] = connection
            connection.send_request(request)
            self._repeat(connection, request)
            self._expect_response(connection)

    def _repeat(self, connection: Connection, request: FetchRequest) -> None:
        """Sometimes a request comes a second time, much later, as over an older connection."""
        if self.world.rng.randrange(60):
            return
        leader = self.world.hosts[connection.leader_id]
        copy = Connection(
            self.world, connection.follower_id, connection.leader_id, connection.number - 1
        )
        copy.is_broken = True
        repeated = replace(request, is_first=True)
        self.world.later(
            self.world.rng.randrange(2_500),
            lambda: leader.run(lambda: leader.on_fetch_request(copy, repeated)),
        )

    def _expect_response(self, connection: Connection) -> None:
        connection.sent += 1
        number = connection.sent

        def check() -> None:
            is_current = self._connections.get(connection.leader_id) is connection
            if is_current and connection.answered < number and not connection.is_ended:
                self._disconnect(connection)

        self.later(RESPONSE_TIMEOUT_MS, check)

    def _disconnect(self, connection: Connection) -> None:
        connection.is_broken = connection.is_ended = True
        leader_id = connection.leader_id
        self.world.situations["a connection has ended"] += 1

        def reconnect() -> None:
            del self._connections[leader_id]
            if leader_id in self._schedules:
                self._schedules[leader_id].on_disconnected()

        self.later(RECONNECT_MS, reconnect)

    def on_fetch_response(self, connection: Connection, results: Results) -> None:
        if self._connections.get(connection.leader_id) is not connection or connection.is_broken:
            return
        connection.answered += 1
        schedule = self._schedules[connection.leader_id]
        for key, effect in schedule.on_response(results, self.world.now_ms):
            self.partitions[key].carry_out([effect])
            schedule.on_changed(key)
