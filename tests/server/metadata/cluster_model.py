"""A cluster under one controller: brokers that live and die, leaders and operators."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from millrace_protocol.metadata_records import (
    NO_LEADER,
    RegisteredListener,
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
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from tests.server.metadata.invariants import check
from tests.server.metadata.metadata_model import (
    DEFAULTS,
    MetadataModel,
    Process,
    all_partitions,
)

CLUSTER = uuid.UUID(int=1)
SESSION_MS = 100


class ClusterModel(MetadataModel):
    """What brokers, leaders and operators do, under one controller."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = BrokerSessions(timeout_ms=SESSION_MS)
        self.rules = TopicChanges(TopicDefaults(2, 3, DEFAULTS))
        self.now_ms = 0

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
            (RegisteredListener("plain", "localhost", 9092, False),),
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
        found = all_partitions(old)
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
            decided = reassign(
                self.image,
                DEFAULTS,
                [Reassignment(topic.name, number, replicas)],
                may_replace=True,
            )
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
        decided = reassign(self.image, DEFAULTS, plan, may_replace=True)
        self.take(decided.records)

    def retire(self, broker_id: int) -> None:
        try:
            records = unregister_broker(self.image, DEFAULTS, broker_id)
        except ApiError:
            return
        self.situations["a broker is retired"] += 1
        before = self.image
        self.take(records)
        for topic, number, known in all_partitions(self.image):
            old = before.topics[topic.name].partitions[number]
            is_kept = bool(known.isr or known.elr) or not (old.isr or old.elr)
            check(is_kept, "a broker that is retired leaves every partition a replica")
        self.sessions.end(broker_id)

    def _create_replicas(self, process: Process) -> None:
        created = [
            (topic.topic_id, number)
            for topic, number, known in all_partitions(self.image)
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
