"""The metadata core: replaying the records of any allowed changes gives the same image."""

from __future__ import annotations

import string
import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisteredListener,
    RemoveTopicRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    encode_metadata_record,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata import delta as delta_module
from millrace_server.metadata.broker_registrations import BrokerStart, register_single_broker
from millrace_server.metadata.delta import Delta, preview
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.producer_ids import PRODUCER_ID_BLOCK, reserve_producer_ids
from millrace_server.metadata.records import UnreadableMetadata, decode_record
from millrace_server.metadata.replica_directories import assign_directories
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

NAMES = st.sampled_from(["a", "b", "c", "__internal", "", "..", "x" * 250])
COUNTS = st.integers(-3, 12)
CONFIGS = st.dictionaries(
    st.sampled_from([*TOPIC_CONFIG_KEYS, "no.such.key"]),
    st.none() | st.sampled_from(["1", "2000", "-1", "os", "fsync", "delete", "LogAppendTime"]),
    max_size=3,
)
CLUSTER = uuid.UUID(int=1)
LISTENER = RegisteredListener("plain", "localhost", 9092, False)
DIRECTORY = uuid.UUID(int=2)
DEFAULTS = TopicDefaults(partitions=3, replication_factor=1, configs={})


def canonical(configs: dict[str, str | None]) -> dict[str, str]:
    """Settings as they are kept, without those that go back to the default."""
    return {k: TOPIC_CONFIG_KEYS[k].check(v) for k, v in configs.items() if v is not None}


def broker(broker_id: int = 0, *, rack: str | None = None) -> BrokerStart:
    return BrokerStart(broker_id, uuid.UUID(int=9), (LISTENER,), rack, (DIRECTORY,))


def started(*racks: str | None) -> ClusterImage:
    """An image with a broker for each rack."""
    image = ClusterImage()
    for broker_id, rack in enumerate(racks):
        records = register_single_broker(
            ClusterImage(), broker(broker_id, rack=rack), cluster_id=CLUSTER
        )
        image = preview(image, records)
    return image


class MetadataMachine(RuleBasedStateMachine):
    """Beside the image a plain dict: name to (id, partitions, settings)."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()
        self.topic_rules = TopicChanges(DEFAULTS)
        self.log: list[bytes] = []
        self.expected: dict[str, tuple[uuid.UUID, int, dict[str, str]]] = {}
        self.created: set[tuple[uuid.UUID, int]] = set()
        self.deleted: list[uuid.UUID] = []
        self.serial = 0

    def take(self, records: list[MetadataRecord]) -> None:
        before, shown = self.image, repr(self.image)
        delta = Delta(self.image)
        for record in records:
            self.log.append(encode_metadata_record(record))
            delta.replay(record)
        self.image = delta.image(len(self.log))
        assert repr(before) == shown, "an image never changes"
        for name, topic in before.topics.items():
            if topic.topic_id not in delta.changed and topic.topic_id not in delta.removed:
                assert self.image.topics[name] is topic, "what did not change is shared"

    @property
    def epoch(self) -> int:
        return self.image.brokers[0].epoch

    @initialize()
    def start_first(self) -> None:
        self.start_broker()

    @rule()
    def start_broker(self) -> None:
        self.take(register_single_broker(self.image, broker(), cluster_id=CLUSTER))
        registered = self.image.brokers[0]
        assert not registered.is_fenced
        offset_of_registration = len(self.log) - 2
        assert registered.epoch == offset_of_registration

    @rule(name=NAMES, partitions=COUNTS, factor=st.integers(-2, 2), configs=CONFIGS)
    def create(
        self, name: str, partitions: int, factor: int, configs: dict[str, str | None]
    ) -> None:
        self.serial += 1
        topic_id = uuid.UUID(int=self.serial)
        try:
            records = self.topic_rules.create_topic(
                self.image,
                name,
                topic_id=topic_id,
                partitions=partitions,
                replication_factor=factor,
                configs=configs,
            )
        except ApiError:
            return
        assert name not in self.expected
        assert factor in (-1, 1)
        assert partitions == -1 or partitions >= 1
        self.take(records)
        own = canonical(configs)
        self.expected[name] = (topic_id, 3 if partitions == -1 else partitions, own)

    @rule(name=NAMES, partitions=COUNTS)
    def widen(self, name: str, partitions: int) -> None:
        try:
            records = self.topic_rules.add_partitions(self.image, name, partitions)
        except ApiError:
            assert name not in self.expected or partitions <= self.expected[name][1]
            return
        self.take(records)
        topic_id, _, own = self.expected[name]
        self.expected[name] = (topic_id, partitions, own)

    @rule(name=NAMES, changes=CONFIGS)
    def configure(self, name: str, changes: dict[str, str | None]) -> None:
        try:
            records = self.topic_rules.change_config(self.image, name, changes)
        except ApiError as refused:
            if name in self.expected:
                assert refused.code is ErrorCode.INVALID_CONFIG
            return
        self.take(records)
        topic_id, partitions, own = self.expected[name]
        kept = canonical({**own, **changes})
        assert bool(records) is (kept != own)
        self.expected[name] = (topic_id, partitions, kept)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        try:
            records = self.topic_rules.delete_topic(self.image, name)
        except ApiError:
            assert name not in self.expected
            return
        self.take(records)
        self.deleted.append(self.expected.pop(name)[0])

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def create_replica(self, data: st.DataObject) -> None:
        topic_id, partitions, _ = self.expected[data.draw(st.sampled_from(sorted(self.expected)))]
        replica = (topic_id, data.draw(st.integers(0, partitions - 1)))
        gone = (uuid.UUID(int=2**100), 0)
        records = assign_directories(
            self.image, 0, DIRECTORY, [replica, gone], broker_epoch=self.epoch
        )
        assert len(records) == (replica not in self.created)
        self.take(records)
        self.created.add(replica)

    @rule()
    def reserve(self) -> None:
        before = self.image.next_producer_id
        self.take(reserve_producer_ids(self.image, 0, broker_epoch=self.epoch))
        assert self.image.next_producer_id == before + PRODUCER_ID_BLOCK

    @rule()
    def restart(self) -> None:
        delta = Delta(ClusterImage())
        for value in self.log:
            delta.replay(decode_record(value))
        assert delta.image(len(self.log)) == self.image

    @rule()
    def restart_from_a_snapshot(self) -> None:
        data = encode_snapshot(self.image, now_ms=1)
        assert decode_snapshot(data, end_offset=self.image.end_offset) == self.image

    @invariant()
    def the_image_is_what_was_allowed(self) -> None:
        image = self.image
        found = {
            t.name: (t.topic_id, t.partition_count, dict(t.configs)) for t in image.topics.values()
        }
        assert found == self.expected
        assert image.names == {topic_id: name for name, (topic_id, _, _) in found.items()}
        assert list(image.removed) == self.deleted
        assert not image.removed.keys() & image.names.keys()
        assert image.cluster_id == (CLUSTER if self.log else None)
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                assert partition.replicas == partition.isr == (0,)
                assert (partition.leader, partition.leader_epoch) == (0, 0)
                is_created = (topic.topic_id, number) in self.created
                assert partition.partition_epoch == is_created
                assert partition.is_created(0) is is_created

    def teardown(self) -> None:
        self.restart()
        self.restart_from_a_snapshot()


TestMetadata = MetadataMachine.TestCase
TestMetadata.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

T, OTHER = uuid.UUID(int=10), uuid.UUID(int=11)
PARTITION = PartitionRecord(T, 0, (0,), (0,), 0, 0, 0, (DIRECTORY,))


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(OTHER, 0, (0,), (0,), 0, 0, 0, (DIRECTORY,)),
        PartitionRecord(T, 0, (0,), (0,), 0, 0, 0, (DIRECTORY,)),
        PartitionRecord(T, 2, (0,), (0,), 0, 0, 0, (DIRECTORY,)),
        PartitionRecord(T, 1, (0,), (0,), 0, 0, 0, ()),
        PartitionChangeRecord(OTHER, 0, None, None, -2, None),
        PartitionChangeRecord(T, 1, None, None, -2, None),
        PartitionChangeRecord(T, -1, None, None, -2, None),
        PartitionChangeRecord(T, 0, (0, 1), None, -2, None),
        ConfigRecord(OTHER, "retention.ms", "1"),
        RemoveTopicRecord(OTHER),
        TopicRecord("t", OTHER),
        TopicRecord("u", T),
        BrokerRegistrationChangeRecord(0, 7, is_fenced=True),
        BrokerRegistrationChangeRecord(1, 1, is_fenced=True),
        ClusterRecord(CLUSTER, delta_module.FEATURE_LEVEL + 1),
        SnapshotHeaderRecord(1),
    ],
)
@pytest.mark.parametrize("is_replayed_before", [False, True])
def test_a_record_that_cannot_follow_stops_the_replay(
    record: MetadataRecord, is_replayed_before: bool
) -> None:
    delta = Delta(started(None))
    delta.replay(TopicRecord("t", T))
    delta.replay(PARTITION)
    if is_replayed_before:
        delta = Delta(delta.image(5))
    with pytest.raises(UnreadableMetadata):
        delta.replay(record)
    assert delta.image(6).topics.keys() == {"t"}


def test_a_new_leader_takes_the_next_leader_epoch() -> None:
    image = preview(started(None, None), [TopicRecord("t", T), PARTITION])
    changes = [
        PartitionChangeRecord(T, 0, (0, 1), None, -2, (DIRECTORY, OTHER)),
        PartitionChangeRecord(T, 0, None, (0, 1), -2, None),
        PartitionChangeRecord(T, 0, None, (1,), 1, None),
        PartitionChangeRecord(T, 0, None, None, -1, None),
    ]
    found = []
    for change in changes:
        image = preview(image, [change])
        p = image.topics["t"].partitions[0]
        found.append((p.replicas, p.isr, p.leader, p.leader_epoch, p.partition_epoch))
    assert found == [
        ((0, 1), (0,), 0, 0, 1),
        ((0, 1), (0, 1), 0, 0, 2),
        ((0, 1), (1,), 1, 1, 3),
        ((0, 1), (1,), -1, 2, 4),
    ]


def test_a_topic_is_deleted_and_created_again_in_one_change() -> None:
    before = preview(started(None), [TopicRecord("t", T), PARTITION])
    delta = Delta(before)
    delta.replay(RemoveTopicRecord(T))
    delta.replay(TopicRecord("t", OTHER))
    image = delta.image(9)
    assert image.topics["t"].topic_id == OTHER
    assert (image.topic_by_id(T), delta.removed, delta.changed) == (None, [T], [OTHER])


def test_the_deleted_topics_that_are_remembered_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta_module, "REMOVED_TOPICS_MAX", 2)
    image = started(None)
    for number in range(4):
        topic_id = uuid.UUID(int=number)
        image = preview(image, [TopicRecord("t", topic_id), RemoveTopicRecord(topic_id)])
    assert list(image.removed) == [uuid.UUID(int=2), uuid.UUID(int=3)]


def test_replicas_go_to_different_brokers_and_racks_and_leaders_go_around() -> None:
    image = started("x", "x", "y", "y")
    records = TopicChanges(DEFAULTS).create_topic(
        image, "t", topic_id=T, partitions=4, replication_factor=2, configs={}, start=1
    )
    placed = [r.replicas for r in records if isinstance(r, PartitionRecord)]
    assert sorted(replicas[0] for replicas in placed) == [0, 1, 2, 3]
    assert all(len({image.brokers[b].rack for b in replicas}) == 2 for replicas in placed)


def test_a_fenced_broker_gets_no_partition_while_others_are_enough() -> None:
    image = started(None, None)
    fence = BrokerRegistrationChangeRecord(1, image.brokers[1].epoch, is_fenced=True)
    image = preview(image, [fence])
    rules = TopicChanges(DEFAULTS)
    records = rules.create_topic(
        image, "t", topic_id=T, partitions=3, replication_factor=1, configs={}
    )
    assert {r.replicas for r in records if isinstance(r, PartitionRecord)} == {(0,)}


def test_a_data_directory_of_another_broker_is_refused() -> None:
    with pytest.raises(ApiError, match="belongs to broker 0 and node_id is 4; set node_id"):
        register_single_broker(started(None), broker(4), cluster_id=CLUSTER)


def test_names_of_every_allowed_character_are_allowed() -> None:
    name = string.ascii_letters + string.digits + "._-"
    records = TopicChanges(DEFAULTS).create_topic(
        started(None), name, topic_id=T, partitions=-1, replication_factor=-1, configs={}
    )
    assert records[0] == TopicRecord(name, T)
