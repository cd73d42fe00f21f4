"""The metadata of a cluster, and the records of its partitions: what changes and what must hold.

Every change is encoded, appended to a log and replayed. After each one `Violation` is raised where
an invariant does not hold.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_protocol.metadata_records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    RegisterBrokerRecord,
    encode_metadata_record,
)
from millrace_server.metadata.broker_registrations import UNCLEAN_SHUTDOWN
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage, PartitionRegistration, Topic
from millrace_server.metadata.replication_settings import ReplicationSettings, replication_settings
from tests.server.metadata.invariants import (
    Change,
    check,
    check_epochs,
    check_loss,
    check_state,
    is_loss,
    situations_of,
)
from tests.server.metadata.partition_model import PartitionModel

DEFAULTS: dict[str, str] = {}
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


class MetadataModel:
    """`image` is in force at the controller and at every broker that runs."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.log: list[bytes] = []
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
        for topic, number, known in all_partitions(self.image):
            settings = self._settings(topic)
            check_state(self.image, topic, known, settings)
            old = before.topic_by_id(topic.topic_id)
            if old is not None and number < old.partition_count:
                change = Change(old.partitions[number], known, entered, restarted)
                check_epochs(change)
                self.situations.update(situations_of(change))
                if is_loss(change):
                    check_loss(change, settings, is_wanted=may_lose)
                    self._model(topic, number).accept_loss(known.leader)
        for topic, number, _ in all_partitions(self.image):
            self._commit(topic, number)
        self.check_records()

    def check_records(self) -> None:
        """Every eligible replica of a registered process has all that is committed."""
        for topic, number, known in all_partitions(self.image):
            model = self._model(topic, number)
            for replica in (*known.isr, *known.elr):
                process, broker = self.processes[replica], self.image.brokers.get(replica)
                if broker is None or broker.incarnation_id.int != process.incarnation:
                    continue
                directory_id = known.directory_of(replica)
                is_there = directory_id in (process.directory_id, UNASSIGNED_DIRECTORY)
                if process.is_running and (is_there or replica == known.leader):
                    check(model.has_committed(replica), "eligible replicas miss no record")

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
        found = all_partitions(self.image)
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


def all_partitions(image: ClusterImage) -> list[tuple[Topic, int, PartitionRegistration]]:
    return [
        (topic, number, known)
        for topic in image.topics.values()
        for number, known in enumerate(topic.partitions)
    ]
