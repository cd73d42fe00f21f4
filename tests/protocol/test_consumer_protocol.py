"""The metadata of group members: valid, as Kafka's clients write and read it, and broken."""

from __future__ import annotations

import doctest
import struct
import tracemalloc
import warnings

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment as AioAssignment,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberMetadata as AioSubscription,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_protocol import consumer_protocol
from millrace_protocol.consumer_protocol import (
    VERSION,
    ConsumerAssignment,
    ConsumerSubscription,
    GenerationUserData,
    StickyUserData,
    TopicPartitions,
    by_topic,
    decode_assignment,
    decode_generation_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_generation_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from millrace_protocol.errors import WireError

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
    from kafka.protocol.consumer.metadata import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARTITIONS = st.lists(
    st.builds(TopicPartitions, TEXT, st.lists(INT32, max_size=4).map(tuple)), max_size=4
).map(tuple)
USER_DATA = st.none() | st.binary(max_size=20)
SUBSCRIPTIONS = st.builds(
    ConsumerSubscription,
    st.lists(TEXT, max_size=4).map(tuple),
    USER_DATA,
    PARTITIONS,
    INT32,
    st.none() | TEXT,
)
ASSIGNMENTS = st.builds(ConsumerAssignment, PARTITIONS, USER_DATA)
VERSIONS = st.integers(0, VERSION)


def at_version(whole: ConsumerSubscription, version: int) -> ConsumerSubscription:
    """What a reader sees of a subscription written in `version`."""
    return ConsumerSubscription(
        whole.topics,
        whole.user_data,
        whole.owned if version >= 1 else (),
        whole.generation if version >= 2 else -1,
        whole.rack if version >= 3 else None,
    )


@given(SUBSCRIPTIONS, VERSIONS)
def test_a_subscription_comes_back_as_its_version_carries_it(
    subscription: ConsumerSubscription, version: int
) -> None:
    data = encode_subscription(subscription, version)
    assert decode_subscription(data) == at_version(subscription, version)


@given(ASSIGNMENTS, VERSIONS)
def test_an_assignment_comes_back(assignment: ConsumerAssignment, version: int) -> None:
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@given(PARTITIONS, INT32)
def test_user_data_comes_back(assigned: tuple[TopicPartitions, ...], generation: int) -> None:
    sticky = StickyUserData(assigned, generation)
    assert decode_sticky_user_data(encode_sticky_user_data(sticky)) == sticky
    plain = GenerationUserData(generation)
    assert encode_generation_user_data(plain) == struct.pack(">i", generation)
    assert decode_generation_user_data(encode_generation_user_data(plain)) == plain


def test_a_subscription_laid_out_by_hand() -> None:
    subscription = ConsumerSubscription(
        ("t",), None, (TopicPartitions("t", (1, 258)),), generation=7, rack="r"
    )
    assert encode_subscription(subscription).hex(" ") == (
        "00 03 "  # version
        "00 00 00 01 00 01 74 "  # topics
        "ff ff ff ff "  # no user data
        "00 00 00 01 00 01 74 00 00 00 02 00 00 00 01 00 00 01 02 "  # owned
        "00 00 00 07 "  # generation
        "00 01 72"  # rack
    )


@given(SUBSCRIPTIONS, VERSIONS)
def test_kafka_python_writes_and_reads_the_same_subscriptions(
    subscription: ConsumerSubscription, version: int
) -> None:
    theirs = ConsumerProtocolSubscription(
        version=version,
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(
                topic=owned.topic, partitions=list(owned.partitions)
            )
            for owned in subscription.owned
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    data = encode_subscription(subscription, version)
    assert bytes(theirs.encode()) == data
    read = ConsumerProtocolSubscription.decode(data)
    assert (read.version, tuple(read.topics)) == (version, subscription.topics)
    seen = at_version(subscription, version)
    assert [(own.topic, tuple(own.partitions)) for own in read.owned_partitions or ()] == [
        (own.topic, own.partitions) for own in seen.owned
    ]
    assert (read.generation_id, read.rack_id) == (seen.generation, seen.rack)


@given(ASSIGNMENTS, VERSIONS)
def test_kafka_python_writes_and_reads_the_same_assignments(
    assignment: ConsumerAssignment, version: int
) -> None:
    theirs = ConsumerProtocolAssignment(
        version=version,
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(
                topic=given.topic, partitions=list(given.partitions)
            )
            for given in assignment.partitions
        ],
        user_data=assignment.user_data,
    )
    data = encode_assignment(assignment, version)
    assert bytes(theirs.encode()) == data
    assert [tuple(pair) for pair in ConsumerProtocolAssignment.decode(data).partitions()] == [
        (given.topic, partition)
        for given in assignment.partitions
        for partition in given.partitions
    ]


@given(SUBSCRIPTIONS, ASSIGNMENTS)
def test_aiokafka_writes_and_reads_the_same_bytes_of_version_0(
    subscription: ConsumerSubscription, assignment: ConsumerAssignment
) -> None:
    data = encode_subscription(subscription, 0)
    assert AioSubscription(0, list(subscription.topics), subscription.user_data).encode() == data
    read = AioSubscription.decode(data)
    assert (tuple(read.subscription), read.user_data) == (
        subscription.topics,
        subscription.user_data,
    )
    data = encode_assignment(assignment, 0)
    pairs = [(given.topic, list(given.partitions)) for given in assignment.partitions]
    assert AioAssignment(0, pairs, assignment.user_data).encode() == data
    assert [(topic, list(numbers)) for topic, numbers in AioAssignment.decode(data).assignment] == (
        pairs
    )


@given(PARTITIONS, INT32)
def test_both_clients_write_the_same_sticky_user_data(
    assigned: tuple[TopicPartitions, ...], generation: int
) -> None:
    pairs = [(given.topic, list(given.partitions)) for given in assigned]
    data = encode_sticky_user_data(StickyUserData(assigned, generation))
    assert StickyAssignorUserDataV1(pairs, generation).encode() == data
    # By itself kafka-python puts a version in front, which Kafka's own clients do not.
    assert bytes(StickyAssignorUserData(pairs, generation).encode(header=False)) == data


@given(PARTITIONS)
def test_sticky_user_data_without_a_generation_is_read(
    assigned: tuple[TopicPartitions, ...],
) -> None:
    theirs = StickyAssignorUserData(
        [(given.topic, list(given.partitions)) for given in assigned], version=0
    )
    assert decode_sticky_user_data(bytes(theirs.encode(header=False))) == (
        StickyUserData(assigned, -1)
    )


@given(SUBSCRIPTIONS, ASSIGNMENTS, st.integers(VERSION + 1, 2**15 - 1), st.binary(max_size=9))
def test_a_newer_version_is_read_as_far_as_it_is_known(
    subscription: ConsumerSubscription, assignment: ConsumerAssignment, version: int, rest: bytes
) -> None:
    newer = version.to_bytes(2, "big")
    assert decode_subscription(newer + encode_subscription(subscription)[2:] + rest) == subscription
    assert decode_assignment(newer + encode_assignment(assignment)[2:] + rest) == assignment


@settings(deadline=None)
@given(SUBSCRIPTIONS, ASSIGNMENTS, VERSIONS)
def test_every_cut_and_every_byte_too_many_is_refused(
    subscription: ConsumerSubscription, assignment: ConsumerAssignment, version: int
) -> None:
    data = encode_subscription(subscription, version)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode_subscription(data[:end])
    with pytest.raises(WireError, match=f"extra bytes after the .*: 1, at byte {len(data)}"):
        decode_subscription(data + b"\x00")
    data = encode_assignment(assignment, version)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode_assignment(data[:end])
    with pytest.raises(WireError, match=r"extra bytes after the .*: 1"):
        decode_assignment(data + b"\x00")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (
        decode_subscription,
        decode_assignment,
        decode_sticky_user_data,
        decode_generation_user_data,
    ):
        try:
            decode(data)
        except WireError as error:
            assert 0 <= error.position <= len(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "version: int16 takes 2 bytes, 0 follow, at byte 0"),
        (b"\xff\xff\0\0\0\0", "version: ConsumerSubscription has version -1, at byte 0"),
        (b"\0\0\xff\xff\xff\xff", "topics: array of -1 elements, 0 bytes follow, at byte 2"),
        (b"\0\0\x7f\xff\xff\xff\0\0", "topics: array of 2,147,483,647 elements, 2 bytes follow"),
        (b"\0\0\0\0\0\x01\xff\xff", "topics[0]: string has a length of -1, at byte 6"),
        (b"\0\0\0\0\0\x01\0\x01\xff", "string is not UTF-8: invalid start byte, at byte 8"),
    ],
)
def test_an_error_names_the_fault_and_its_position(data: bytes, sentence: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_subscription(data)
    assert sentence in str(refused.value)


def test_a_count_alone_allocates_nothing() -> None:
    liar = b"\0\0" + struct.pack(">i", 90_000) + bytes(90_000)
    tracemalloc.start()
    try:
        for decode in (decode_assignment, decode_subscription):
            with pytest.raises(WireError):
                decode(liar)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(liar)


def test_partitions_beyond_the_limit_of_a_group_are_refused() -> None:
    many = tuple(TopicPartitions("t", tuple(range(50_000))) for _ in range(4))
    with pytest.raises(WireError, match="more than 200,000 elements together"):
        decode_assignment(encode_assignment(ConsumerAssignment(many, None)))


@pytest.mark.parametrize("version", [-1, VERSION + 1])
def test_a_version_that_is_not_known_is_not_written(version: int) -> None:
    with pytest.raises(ValueError, match="0 to 3 are known"):
        encode_subscription(ConsumerSubscription((), None), version)


def test_partitions_are_put_under_their_topics_in_order() -> None:
    assert by_topic([]) == ()
    assert doctest.testmod(consumer_protocol) == (0, 1)
