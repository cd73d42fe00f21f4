"""A cluster under one controller: brokers that live and die, and their replicas' records.

Every change goes through the controller's rules, as records that are encoded, appended to a log and
replayed. After each change `Violation` is raised where an invariant does not hold.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millrace_protocol.metadata_records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    RegisterBrokerRecord,
    encode_metadata_record,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import (
    UNCLEAN_SHUTDOWN,
    BrokerStart,
    fence_broker,
    register_broker,
    unregister_broker,
)
from millrace_server.metadata.broker_sessions import BrokerSessions, Heartbeat, HeartbeatAnswer
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage, PartitionRegistration, Topic
from millrace_server.metadata.isr_changes import IsrChange, change_isrs
from millrace_server.metadata.leader_election import balance_leaders, elect_leaders
from millrace_server.metadata.partition_changes import Election
from millrace_server.metadata.reassignments import Reassignment, plan_retirement, reassign
from millrace_server.metadata.records import decode_record
from millrace_server.metadata.replica_directories import assign_directories
from millrace_server.metadata.replication_settings import ReplicationSettings, replication_settings
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from tests.server.metadata.partition_model import PartitionModel, Violation

CLUSTER = uuid.UUID(int=1)
DEFAULTS: dict[str, str] = {}
SESSION_MS = 100
IMAGES_KEPT = 8
"""Older images that a leader may still act on."""


@dataclass(slots=True)
class Process:
    """One broker's process and disk. `clean_epoch`: where it was stopped cleanly, if it was."""

    broker_id: int
    directory_id: uuid.UUID
    incarnation: int = 0
    epoch: int = -1
    is_running: bool = False
    applied: int = 0
    moved_at: int | None = None
    """The end of the metadata when its leaders had moved away for its shutdown."""
    clean_epoch: int = UNCLEAN_SHUTDOWN


@dataclass(frozen=True, slots=True)
class _Change:
    """What a change may do to a partition: who entered the ISR, and whose process is a new one."""

    before: PartitionRegistration
    entered: Sequence[int]
    restarted: set[int]
    may_lose: bool


def check(holds: bool, invariant: str) -> None:
    """Raises `Violation` unless the invariant holds."""
    if not holds:
        raise Violation(invariant)


class ClusterModel:
    """`image` is in force at the controller and at every broker that runs."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.sessions = BrokerSessions(timeout_ms=SESSION_MS)
        self.rules = TopicChanges(TopicDefaults(2, 3, DEFAULTS))
        self.log: list[bytes] = []
        self.now_ms = 0
        self.processes: dict[int, Process] = {}
        self.partitions: dict[tuple[uuid.UUID, int], PartitionModel] = {}
        self.images: deque[ClusterImage] = deque(maxlen=IMAGES_KEPT)
        self.situations: Counter[str] = Counter()
        self._serial = 1_000

    def running(self, choice: int) -> int | None:
        """One of the brokers that run, None without one."""
        found = sorted(p.broker_id for p in self.processes.values() if p.is_running)
        return found[choice % len(found)] if found else None

    def stopped(self, choice: int, brokers_max: int) -> int | None:
        """One of the brokers up to `brokers_max` that do not run, None without one."""
        running = {p.broker_id for p in self.processes.values() if p.is_running}
        found = sorted(set(range(1, brokers_max + 1)) - running)
        return found[choice % len(found)] if found else None

    def leader(self, choice: int) -> int | None:
        """The leader of a partition, None without one that runs."""
        found = self._led(choice)
        return None if found is None else found[2].leader

    # What brokers do.

    def start(self, broker_id: int) -> bool:
        """A process of this broker starts and registers; False: refused."""
        process = self.processes.setdefault(broker_id, Process(broker_id, self._new_id()))
        if process.is_running:
            return False
        process.incarnation = self._next_serial()
        start = BrokerStart(
            broker_id,
            uuid.UUID(int=process.incarnation),
            "localhost",
            9092,
            None,
            (process.directory_id,),
            "localhost",
            9093,
            process.clean_epoch,
        )
        has_session = self.sessions.is_alive(broker_id, self.now_ms)
        try:
            records = register_broker(
                self.image, DEFAULTS, start, cluster_id=CLUSTER, has_session=has_session
            )
        except ApiError as refused:
            self.situations[f"a registration is refused: {refused.code.name}"] += 1
            return False
        process.is_running = True
        process.moved_at = None
        process.clean_epoch = UNCLEAN_SHUTDOWN
        before = self.image.brokers.get(broker_id)
        self.take(records)
        process.epoch = self.image.brokers[broker_id].epoch
        check(before is None or before.epoch < process.epoch, "broker epochs rise")
        self.sessions.begin(broker_id, self.now_ms)
        return True

    def heartbeat(self, broker_id: int, *, wants_shutdown: bool = False) -> HeartbeatAnswer | None:
        """A running broker sends a heartbeat, and creates the replicas that it lacks."""
        process = self.processes.get(broker_id)
        if process is None or not process.is_running:
            return None
        process.applied = self.image.end_offset
        heartbeat = Heartbeat(broker_id, process.epoch, process.applied, wants_shutdown)
        try:
            self.sessions.contact(self.image, heartbeat, self.now_ms)
            was_active = self.image.brokers[broker_id].is_active
            was_fenced = self.image.brokers[broker_id].is_fenced
            self.take(self.sessions.heartbeat_records(self.image, DEFAULTS, heartbeat))
            if was_active and self.image.brokers[broker_id].in_controlled_shutdown:
                process.moved_at = self.image.end_offset
            self._create_replicas(process)
            answer = self.sessions.heartbeat_answer(self.image, heartbeat)
        except ApiError:
            # Its registration has ended: a broker stops then.
            process.is_running = False
            return None
        if answer.should_shut_down and not was_fenced:
            self._check_shutdown(process.moved_at or 0)
        return answer

    def _check_shutdown(self, moved_at: int) -> None:
        active = (self.processes[b.broker_id] for b in self.image.brokers.values() if b.is_active)
        check(
            all(other.applied >= moved_at for other in active),
            "a broker stops when all others know the leaders that follow it",
        )

    def heartbeat_all(self) -> None:
        """Every broker that runs sends a heartbeat."""
        for broker_id in sorted(self.processes):
            self.heartbeat(broker_id)

    def stop(self, broker_id: int) -> None:
        """A broker asks for a controlled shutdown and stops when it may.

        It may not while a broker that is dead, and not fenced yet, has not applied it.
        """
        for _ in range(4):
            answer = self.heartbeat(broker_id, wants_shutdown=True)
            if answer is None:
                return
            if answer.should_shut_down:
                process = self.processes[broker_id]
                process.is_running = False
                process.clean_epoch = process.epoch
                self.situations["a broker has stopped cleanly"] += 1
                self.sessions.end(broker_id)
                for partition in self.partitions.values():
                    partition.sync(broker_id)
                return
            for other in list(self.processes):
                if other != broker_id:
                    self.heartbeat(other)
        active = [b.broker_id for b in self.image.brokers.values() if b.is_active]
        check(
            not all(self.processes[other].is_running for other in active),
            "a controlled shutdown ends when all others have applied it",
        )

    def kill(self, broker_id: int) -> None:
        """The process ends, and what is not synced is lost."""
        process = self.processes.get(broker_id)
        if process is not None and process.is_running:
            process.is_running = False
            for partition in self.partitions.values():
                partition.stop_uncleanly(broker_id)

    def wipe(self, broker_id: int) -> None:
        """A broker that does not run loses its disk and gets an empty one."""
        process = self.processes.get(broker_id)
        if process is not None and not process.is_running:
            process.directory_id = self._new_id()
            process.clean_epoch = UNCLEAN_SHUTDOWN
            for partition in self.partitions.values():
                partition.wipe(broker_id)

    def silence(self, broker_id: int) -> None:
        """The controller hears every broker but one for a whole session."""
        self.now_ms += SESSION_MS
        for other, process in list(self.processes.items()):
            if other != broker_id and process.is_running:
                self.heartbeat(other)
        for over in self.sessions.overdue(self.now_ms):
            self.take(fence_broker(self.image, DEFAULTS, over))
            self.sessions.end(over)

    def fail_over(self) -> None:
        """Another controller takes over, and replays the log from a snapshot or from empty."""
        delta = Delta(ClusterImage())
        for value in self.log:
            delta.replay(decode_record(value))
        check(delta.image(len(self.log)) == self.image, "the log replayed is the image")
        snapshot = encode_snapshot(self.image, now_ms=1)
        found = decode_snapshot(snapshot, end_offset=self.image.end_offset)
        check(found == self.image, "a snapshot is the image")
        self.sessions = BrokerSessions(timeout_ms=SESSION_MS)
        self.sessions.take_over(self.image, self.now_ms)

    # What clients and leaders do.

    def produce(self, choice: int) -> None:
        """A client writes with acks=1 to a partition with a running leader."""
        found = self._led(choice)
        if found is not None:
            topic, number, known = found
            self._model(topic, number).append(
                known, self._next_serial(), is_synced=self._settings(topic).is_synced
            )
            self._commit(topic, number)

    def fetch(self, choice: int, follower: int) -> None:
        """A follower that runs fetches all that its leader has; it may be fenced."""
        found = self._led(choice)
        process = self.processes.get(follower)
        if found is None or process is None or not process.is_running:
            return
        topic, number, known = found
        if follower in known.replicas and follower != known.leader:
            model, is_synced = self._model(topic, number), self._settings(topic).is_synced
            model.fetch(known, follower, process.epoch, is_synced=is_synced)
            self._commit(topic, number)

    def replicate(self, choice: int) -> None:
        """All followers that run fetch."""
        for follower in sorted(self.processes):
            self.fetch(choice, follower)

    def expand(self, choice: int, follower: int) -> None:
        """A leader asks for a follower that has caught up, as it saw it, to enter the ISR."""
        found = self._led(choice)
        if found is None:
            return
        topic, number, known = found
        model = self._model(topic, number)
        if follower not in known.isr and model.is_caught_up(known, follower):
            self._ask(topic, number, known, (*known.isr, follower))

    def shrink(self, choice: int, follower: int) -> None:
        """A leader asks for a follower to leave the ISR."""
        found = self._led(choice)
        if found is not None and follower in found[2].isr and follower != found[2].leader:
            topic, number, known = found
            self._ask(topic, number, known, [r for r in known.isr if r != follower])

    def ask_late(self, choice: int, age: int, members: Sequence[int]) -> None:
        """A request of the leader that an older image names arrives now: any ISR, old epochs."""
        if not self.images:
            return
        old = self.images[age % len(self.images)]
        found = _all_partitions(old)
        if found:
            topic, number, known = found[choice % len(found)]
            if known.leader != NO_LEADER and known.leader in old.brokers:
                self._ask(topic, number, known, [known.leader, *members], old=old)

    def _ask(
        self,
        topic: Topic,
        number: int,
        known: PartitionRegistration,
        isr: Iterable[int],
        *,
        old: ClusterImage | None = None,
    ) -> None:
        model = self._model(topic, number)
        members = []
        for member in dict.fromkeys(isr):
            seen = model.fetched.get(member)
            is_leader = member == known.leader
            epoch = (old or self.image).brokers[known.leader].epoch if is_leader else -1
            members.append((member, epoch if seen is None or is_leader else seen.broker_epoch))
        change = IsrChange(
            topic.topic_id, number, known.leader_epoch, known.partition_epoch, tuple(members)
        )
        sender = (old or self.image).brokers[known.leader]
        try:
            decided = change_isrs(
                self.image,
                DEFAULTS,
                [change],
                broker_id=sender.broker_id,
                broker_epoch=sender.epoch,
            )
        except ApiError as refused:
            self.situations[f"an ISR is refused: {refused.code.name}"] += 1
            return
        for error in decided.refused:
            if error is not None:
                self.situations[f"an ISR is refused: {error.code.name}"] += 1
        if old is not None:
            is_as_it_was = self._is_current(topic, number, known, old)
            if is_as_it_was:
                return
            check(not decided.records, "a request that is based on old metadata changes nothing")
        self.take(decided.records, entered=[member for member, _ in members])

    def _is_current(
        self, topic: Topic, number: int, known: PartitionRegistration, old: ClusterImage
    ) -> bool:
        now = self.image.topic_by_id(topic.topic_id)
        if now is None or now.partitions[number] != known:
            return False
        leader = known.leader
        return self.image.brokers.get(leader) == old.brokers[leader]

    # What operators do.

    def create(self, partitions: int, factor: int, configs: dict[str, str]) -> None:
        """A topic with a name of its own."""
        serial = self._next_serial()
        try:
            records = self.rules.create_topic(
                self.image,
                f"t{serial}",
                topic_id=uuid.UUID(int=serial),
                partitions=partitions,
                replication_factor=factor,
                configs=configs,
                start=serial,
            )
        except ApiError:
            return
        self.take(records)

    def configure(self, choice: int, configs: dict[str, str | None]) -> None:
        topic = self._topic(choice)
        if topic is not None:
            try:
                records = self.rules.change_config(self.image, topic.name, configs)
            except ApiError:
                return
            self.take(records)

    def delete(self, choice: int) -> None:
        topic = self._topic(choice)
        if topic is not None:
            self.take(self.rules.delete_topic(self.image, topic.name))

    def reassign(self, choice: int, replicas: tuple[int, ...] | None) -> None:
        found = self._any(choice)
        if found is not None:
            topic, number, _ = found
            decided = reassign(self.image, DEFAULTS, [Reassignment(topic.name, number, replicas)])
            if replicas is None and decided.records:
                self.situations["a reassignment is cancelled"] += 1
            self.take(decided.records)

    def elect(self, choice: int, election: Election) -> None:
        found = self._any(choice)
        if found is not None:
            topic, number, _ = found
            decided = elect_leaders(self.image, DEFAULTS, [(topic.name, number)], election)
            self.take(decided.records, may_lose=election is Election.UNCLEAN)

    def balance(self) -> None:
        self.take(balance_leaders(self.image, DEFAULTS, moves_max=2))

    def evacuate(self, broker_id: int) -> None:
        """Begins to move all replicas away from a broker."""
        try:
            plan = plan_retirement(self.image, broker_id)
        except ApiError:
            return
        decided = reassign(self.image, DEFAULTS, plan)
        self.take(decided.records)

    def retire(self, broker_id: int) -> None:
        try:
            records = unregister_broker(self.image, DEFAULTS, broker_id)
        except ApiError:
            return
        self.situations["a broker is retired"] += 1
        before = self.image
        self.take(records)
        for topic, number, known in _all_partitions(self.image):
            old = before.topics[topic.name].partitions[number]
            is_kept = bool(known.isr or known.elr) or not (old.isr or old.elr)
            check(is_kept, "a broker that is retired leaves every partition a replica")
        self.sessions.end(broker_id)

    # The log, and what holds behind every change.

    def take(
        self,
        records: Sequence[MetadataRecord],
        *,
        entered: Sequence[int] = (),
        may_lose: bool = False,
    ) -> None:
        """Appends and replays the records of one change.

        `entered` have caught up; `may_lose`: an unclean election was asked for.
        """
        if not records:
            return
        before = self.image
        delta = Delta(before)
        for record in records:
            self.log.append(encode_metadata_record(record))
            delta.replay(record)
        self.image = delta.image(len(self.log))
        self.images.append(before)
        restarted = {r.broker_id for r in records if isinstance(r, RegisterBrokerRecord)}
        for topic, number, known in _all_partitions(self.image):
            self._check_state(topic, known)
            old = before.topic_by_id(topic.topic_id)
            if old is not None and number < old.partition_count:
                self._check_step(old.partitions[number], known)
                change = _Change(old.partitions[number], entered, restarted, may_lose)
                self._check_leader(topic, number, change)
        for topic, number, _ in _all_partitions(self.image):
            self._commit(topic, number)
        self.check_records()

    def check_records(self) -> None:
        """Every eligible replica of a registered process has all that is committed."""
        for topic, number, known in _all_partitions(self.image):
            model = self._model(topic, number)
            for replica in (*known.isr, *known.elr):
                process, broker = self.processes[replica], self.image.brokers.get(replica)
                if broker is None or broker.incarnation_id.int != process.incarnation:
                    continue
                directory_id = known.directory_of(replica)
                is_there = directory_id in (process.directory_id, UNASSIGNED_DIRECTORY)
                if process.is_running and (is_there or replica == known.leader):
                    check(model.has_committed(replica), "eligible replicas miss no record")

    def _check_state(self, topic: Topic, known: PartitionRegistration) -> None:
        replicas, isr, elr = set(known.replicas), set(known.isr), set(known.elr)
        check(len(replicas) == len(known.replicas) > 0, "a broker has one replica at most")
        check(isr | elr | set(known.last_known_elr) <= replicas, "ISR and ELR are replicas")
        check(not isr & elr, "ISR and ELR share no broker")
        check(not (isr | elr) & set(known.last_known_elr), "who is eligible has lost nothing")
        check(
            set(known.adding) | set(known.removing) <= replicas, "what is reassigned are replicas"
        )
        check(not set(known.adding) & set(known.removing), "a replica is added or removed")
        settings = self._settings(topic)
        check(settings.min_isr <= topic.replication_factor, "acks=all can be answered")
        active = {b.broker_id for b in self.image.brokers.values() if b.is_active}
        if known.leader == NO_LEADER:
            check(len(isr) <= 1 or isr <= active, "only the last replica stays in the ISR")
            able = {r for r in (isr | elr) & active if self._has_directory(known, r)}
            check(not able, "a partition has a leader while one is eligible")
            return
        check(known.leader in isr, "the leader is in the ISR")
        check(isr <= active, "no broker that is fenced or stops is in an ISR with a leader")
        check(not known.last_known_elr, "last known leaders are for partitions without a leader")
        is_enough = len(isr) >= min(settings.min_isr, len(replicas))
        check(not elr or not is_enough, "there is an ELR only below min.insync.replicas")

    def _check_step(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        check(new.leader_epoch >= old.leader_epoch, "leader epochs do not fall")
        check(new == old or new.partition_epoch > old.partition_epoch, "a change is counted")
        self._note(old, new)
        is_led_anew = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
        check(not is_led_anew or new.leader_epoch > old.leader_epoch, "a new leader, a new epoch")

    def _note(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        if new.leader != NO_LEADER and new.leader != old.leader:
            if new.leader in old.elr:
                self.situations["a leader is elected from the ELR"] += 1
            if new.leader in old.last_known_elr:
                self.situations["the last known leader is elected"] += 1
        if old.removing and not new.removing:
            self.situations["a reassignment is done or cancelled"] += 1
        if new.adding and not old.adding:
            self.situations["a replica is being added"] += 1
        if new.elr and not old.elr:
            self.situations["a replica enters the ELR"] += 1

    def _check_leader(self, topic: Topic, number: int, change: _Change) -> None:
        """A leader that was not eligible is one that the topic or an operator has asked for."""
        old, new = change.before, topic.partitions[number]
        leader = new.leader
        is_made_anew = new.directory_of(leader) == UNASSIGNED_DIRECTORY != old.directory_of(leader)
        eligible = {*old.isr, *old.elr, *change.entered}
        if leader == NO_LEADER or (leader in eligible and not is_made_anew):
            return
        settings = self._settings(topic)
        is_last_known = leader in old.last_known_elr and eligible <= change.restarted
        check(
            change.may_lose
            or settings.allows_unclean
            or (is_last_known and not settings.is_synced),
            "only an eligible replica is elected unless the topic says otherwise",
        )
        if not is_last_known:
            self.situations["an unclean leader is elected"] += 1
        self._model(topic, number).accept_loss(leader)

    def _has_directory(self, known: PartitionRegistration, broker_id: int) -> bool:
        directory_id = known.directory_of(broker_id)
        directories = self.image.brokers[broker_id].directory_ids
        return directory_id == UNASSIGNED_DIRECTORY or directory_id in directories

    def _create_replicas(self, process: Process) -> None:
        created = [
            (topic.topic_id, number)
            for topic, number, known in _all_partitions(self.image)
            if process.broker_id in known.replicas and not known.is_created(process.broker_id)
        ]
        self.take(
            assign_directories(
                self.image,
                process.broker_id,
                process.directory_id,
                created,
                broker_epoch=process.epoch,
            )
        )

    def _commit(self, topic: Topic, number: int) -> None:
        """The leader moves the high watermark, if it runs and has created its replica."""
        known = self.image.topics[topic.name].partitions[number]
        process = self.processes.get(known.leader)
        if process is not None and process.is_running and known.is_created(known.leader):
            self._model(topic, number).commit(known, min_isr=self._settings(topic).min_isr)

    def _settings(self, topic: Topic) -> ReplicationSettings:
        return replication_settings(topic, DEFAULTS)

    def _model(self, topic: Topic, number: int) -> PartitionModel:
        return self.partitions.setdefault((topic.topic_id, number), PartitionModel())

    def _topic(self, choice: int) -> Topic | None:
        topics = list(self.image.topics.values())
        return topics[choice % len(topics)] if topics else None

    def _any(self, choice: int) -> tuple[Topic, int, PartitionRegistration] | None:
        found = _all_partitions(self.image)
        return found[choice % len(found)] if found else None

    def _led(self, choice: int) -> tuple[Topic, int, PartitionRegistration] | None:
        """A partition whose leader runs under its registration and has created its replica."""
        found = self._any(choice)
        if found is None or found[2].leader == NO_LEADER:
            return None
        leader = self.processes[found[2].leader]
        is_there = leader.is_running and found[2].is_created(leader.broker_id)
        return found if is_there else None

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._next_serial())

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial


def _all_partitions(image: ClusterImage) -> list[tuple[Topic, int, PartitionRegistration]]:
    return [
        (topic, number, known)
        for topic in image.topics.values()
        for number, known in enumerate(topic.partitions)
    ]
