"""The metadata core: replaying the records of any allowed changes gives the same image."""

from __future__ import annotations

import string
from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.controller import PRODUCER_ID_BLOCK, Controller, TopicDefaults
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import (
    ClusterCreated,
    MetadataRecord,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

NAMES = st.sampled_from(["a", "b", "c", "__internal", "", "..", "x" * 250])
COUNTS = st.integers(-3, 12)
CONFIGS = st.dictionaries(
    st.sampled_from([*TOPIC_CONFIG_KEYS, "no.such.key"]),
    st.none() | st.sampled_from(["1", "2000", "-1", "os", "fsync", "delete", "LogAppendTime"]),
    max_size=3,
)


def canonical(configs: dict[str, str | None]) -> dict[str, str]:
    """Settings as they are kept, without those that go back to the default."""
    return {k: TOPIC_CONFIG_KEYS[k].check(v) for k, v in configs.items() if v is not None}


class MetadataMachine(RuleBasedStateMachine):
    """Beside the image a plain dict: name to (id, partitions, settings)."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()
        defaults = TopicDefaults(partitions=3, replication_factor=1, configs={})
        self.controller = Controller(self.image, defaults, broker_count=1)
        self.log: list[bytes] = []
        self.expected: dict[str, tuple[str, int, dict[str, str]]] = {}
        self.deleted: set[str] = set()
        self.serial = 0
        self.take([ClusterCreated("cluster")])

    def take(self, records: list[MetadataRecord]) -> None:
        for record in records:
            self.log.append(encode_record(record))
            self.image.replay(record)

    @rule(name=NAMES, partitions=COUNTS, factor=st.integers(-2, 2), configs=CONFIGS)
    def create(
        self, name: str, partitions: int, factor: int, configs: dict[str, str | None]
    ) -> None:
        before = deepcopy(self.image)
        self.serial += 1
        topic_id = f"id-{self.serial}"
        try:
            record = self.controller.create_topic(
                name,
                topic_id=topic_id,
                partitions=partitions,
                replication_factor=factor,
                configs=configs,
            )
        except ApiError:
            assert self.image == before
            return
        assert self.image == before, "the controller decides and changes nothing"
        assert name not in self.expected
        assert factor in (-1, 1)
        assert partitions == -1 or partitions >= 1
        self.take([record])
        own = canonical(configs)
        self.expected[name] = (topic_id, 3 if partitions == -1 else partitions, own)

    @rule(name=NAMES, partitions=COUNTS)
    def widen(self, name: str, partitions: int) -> None:
        try:
            records = self.controller.add_partitions(name, partitions)
        except ApiError:
            assert name not in self.expected or partitions <= self.expected[name][1]
            return
        self.take(records)
        topic_id, _, own = self.expected[name]
        self.expected[name] = (topic_id, partitions, own)

    @rule(name=NAMES, changes=CONFIGS)
    def configure(self, name: str, changes: dict[str, str | None]) -> None:
        try:
            records = self.controller.change_config(name, changes)
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
            records = self.controller.delete_topic(name)
        except ApiError:
            assert name not in self.expected
            return
        self.take(records)
        self.deleted.add(self.expected.pop(name)[0])

    @rule()
    def reserve(self) -> None:
        before = self.image.next_producer_id
        self.take(self.controller.reserve_producer_ids())
        assert self.image.next_producer_id == before + PRODUCER_ID_BLOCK

    @precondition(lambda self: self.expected)
    @rule()
    def restart(self) -> None:
        replayed = ClusterImage()
        for value in self.log:
            replayed.replay(decode_record(value))
        assert replayed == self.image

    @invariant()
    def the_image_is_what_was_allowed(self) -> None:
        image = self.image
        found = {t.name: (t.topic_id, t.partitions, t.configs) for t in image.topics.values()}
        assert found == self.expected
        assert image.names == {topic_id: name for name, (topic_id, _, _) in found.items()}
        assert image.deleted == self.deleted
        assert not image.deleted & image.names.keys()
        assert image.cluster_id == "cluster"

    def teardown(self) -> None:
        self.restart()


TestMetadata = MetadataMachine.TestCase
TestMetadata.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize(
    "record",
    [
        PartitionsAdded("unknown", 3),
        TopicConfigChanged("unknown", {}),
        TopicDeleted("unknown"),
        TopicCreated("t", "other", 1, 1, {}),
    ],
)
def test_a_record_that_cannot_follow_stops_the_replay(record: MetadataRecord) -> None:
    image = ClusterImage()
    image.replay(TopicCreated("t", "id", 1, 1, {}))
    with pytest.raises(UnreadableMetadata):
        image.replay(record)
    assert image.topics.keys() == {"t"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"type": "TopicDeleted"}',
        b'{"type": "Unheard"}',
        b'{"type": ["TopicDeleted"], "topic_id": "x"}',
    ],
)
def test_a_record_that_is_not_understood_is_refused_in_a_sentence(value: bytes) -> None:
    with pytest.raises(UnreadableMetadata, match="not understood"):
        decode_record(value)


def test_a_field_that_a_newer_broker_added_is_passed_over() -> None:
    value = b'{"type": "TopicDeleted", "topic_id": "x", "reason": "old age"}'
    assert decode_record(value) == TopicDeleted("x")


def test_names_of_every_allowed_character_are_allowed() -> None:
    controller = Controller(ClusterImage(), TopicDefaults(1, 1, {}), broker_count=1)
    name = string.ascii_letters + string.digits + "._-"
    created = controller.create_topic(
        name, topic_id="x", partitions=-1, replication_factor=-1, configs={}
    )
    assert created.name == name
