"""Checks of W-1, W-4.1, W-4.2 and W-6: sessions, metadata, limits of connections."""

from __future__ import annotations

import struct
import uuid

from tests.wire.apis import APIS, NAMES
from tests.wire.batches import batch
from tests.wire.check import Target, check, codes, equal, produce, true
from tests.wire.frames import FRAME_TOO_LARGE, INVALID_REQUEST

ABOVE_EVERY_FRAME = 0x20000000


@check("W-1.1")
def the_first_byte_chooses_the_dialect(target: Target) -> None:
    """A printable first byte is text, LF and tab too; any other begins a frame."""
    for opening in (b"HELP", b"\nHELP", b"\tHELP", b"\r\nHELP"):
        with target.text() as text:
            true(text.ask(opening)[-1].startswith("OK"), f"no text for {opening!r}")
    with target.connect() as wire:
        true(wire.hello, "no Hello")


@check("W-1.1")
def a_connection_keeps_its_dialect(target: Target) -> None:
    """Text behind a frame is taken for a frame's length, and closes."""
    with target.connect() as wire:
        wire.write(b"HELP\n" + bytes(20))
        true(b"MR" in wire.until_closed(), "no refusal in frames")


@check("W-4.1")
def hello_names_the_broker_and_its_limits(target: Target) -> None:
    """The response names every api with its range, and the limits in force."""
    with target.connect() as wire:
        assert wire.hello is not None
        apis = {api.api: (api.min_version, api.max_version) for api in wire.hello.apis}
        equal(set(NAMES) - set(apis), set(), "apis that are not named")
        true(all(low <= high for low, high in apis.values()), f"ranges {apis}")
        true(wire.hello.cluster_id and wire.hello.software, "an empty name")
        true(wire.hello.frame_bytes_max >= 65_536, "frame_bytes_max")
        true(wire.hello.inflight_requests_max >= 1, "inflight_requests_max")


@check("W-4.1")
def hello_may_be_sent_again_and_need_not_be_sent(target: Target) -> None:
    """Hello is answered each time, and other apis are answered without it."""
    with target.connect() as wire:
        again = wire.call("Hello", "again", "2")
        equal(again, wire.hello, "the second answer")
    with target.connect(hello=False) as wire:
        wire.call("Metadata", [])


@check("W-4.2")
def metadata_names_the_leader_of_each_partition(target: Target) -> None:
    """Every partition has a leader among the brokers, its replicas and a leader epoch."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=3)
        found = wire.call("Metadata", [topic])
        brokers = {broker.node_id: broker for broker in found.brokers}
        partitions = found.topics[0].partitions
        equal([p.partition for p in partitions], [0, 1, 2], "partitions")
        for partition in partitions:
            true(partition.leader_id in brokers, "a leader that is no broker")
            true(partition.leader_id in partition.replicas, "a leader that is no replica")
            true(partition.leader_id in partition.isr, "a leader that is not in sync")
            true(partition.leader_epoch >= 0, "a leader epoch below 0")
        true(all(b.host and 0 < b.port < 65_536 for b in brokers.values()), "no address")
        true(found.controller_id in brokers, "the controller is no broker")
        true(not found.topics[0].is_internal, "the topic is internal")
        assert wire.hello is not None
        equal(found.cluster_id, wire.hello.cluster_id, "cluster_id")


@check("W-4.2")
def metadata_of_null_is_all_topics_and_of_nothing_none(target: Target) -> None:
    """Null asks for all topics, an empty array for none, a name that is not there is code 3."""
    with target.connect() as wire:
        topic = target.topic(wire)
        everything = wire.call("Metadata", None).topics
        true(topic in [each.name for each in everything], "the new topic is missing")
        equal(codes(everything), [0] * len(everything), "codes of all topics")
        equal(wire.call("Metadata", []).topics, [], "topics of an empty array")
        missing = wire.call("Metadata", [target.name(), "a/b", topic]).topics
        equal(codes(missing), [3, 3, 0], "codes")
        equal(missing[0].topic_id, uuid.UUID(int=0), "the id of no topic")


@check("W-6.1")
def before_hello_a_frame_has_at_most_65536_bytes(target: Target) -> None:
    """A longer length is refused with FRAME_TOO_LARGE and closes."""
    with target.connect(hello=False) as wire:
        wire.write(struct.pack(">I", 65_537))
        _is_too_large(wire.until_closed())
    with target.connect(hello=False) as wire:
        filler = "x" * 32_000
        equal(wire.call("Hello", filler, filler).apis != [], True, "a Hello of 64,000 bytes")


@check("W-6.1")
def a_connection_that_sends_no_frame_is_closed(target: Target) -> None:
    """The first whole frame must arrive in time; half a frame does not count."""
    with target.connect(hello=False) as silent, target.connect(hello=False) as half:
        half.write(b"\0\0\0\x20MR\0\x12")
        equal((silent.until_closed(), half.until_closed()), (b"", b""), "bytes before the close")


@check("W-6.2", "W-6.6")
def a_frame_length_out_of_bounds_is_refused_and_closes(target: Target) -> None:
    """FRAME_TOO_LARGE with api, version and correlation id 0; then the connection closes."""
    with target.connect() as wire:
        assert wire.hello is not None
        longest = wire.hello.frame_bytes_max
    for length in (0, 3, longest + 1, 2**31):
        with target.connect() as wire:
            wire.write(struct.pack(">I", length))
            _is_too_large(wire.until_closed())


def _is_too_large(rest: bytes) -> None:
    true(len(rest) >= 16, f"{len(rest)} bytes before the close are no refusal")
    _, magic, api, version, correlation_id, code = struct.unpack_from(">I2sHHIh", rest)
    found = (magic, api, version, correlation_id, code)
    equal(found, (b"MR", 0x8000, 0, 0, FRAME_TOO_LARGE), "the refusal's header")


@check("W-6.2")
def a_frame_of_the_longest_length_is_read(target: Target) -> None:
    """A frame of `frame_bytes_max` is answered; its body may be refused."""
    with target.connect() as wire:
        assert wire.hello is not None
        size = wire.hello.frame_bytes_max - 12 - len("wire")
        refused = wire.refusal_of(wire.send_body(3, bytes(size)))
        equal(refused.code, INVALID_REQUEST, "a body of zeros")


@check("W-6.3")
def more_than_the_inflight_requests_are_all_answered(target: Target) -> None:
    """The broker stops reading at the limit; it neither drops nor refuses what is behind it."""
    with target.connect() as wire:
        assert wire.hello is not None
        sent = [wire.send("Metadata", []) for _ in range(2 * wire.hello.inflight_requests_max)]
        for each in sent:
            wire.answer(each)


@check("W-6.5")
def a_topic_name_has_1_to_249_of_the_allowed_characters(target: Target) -> None:
    """Other names are INVALID_TOPIC_EXCEPTION."""
    with target.connect() as wire:
        good = [target.name() + "aZ09._-", (target.name() + "x" * 249)[:249]]
        bad = ["", ".", "..", "a/b", "a b", "caf\xe9", "x" * 250, "a\n"]
        new = [(name, 1, -1, (), ()) for name in good + bad]
        equal(codes(wire.call("CreateTopics", new, False).topics), [0, 0] + [17] * 8, "codes")


@check("W-6.5")
def a_client_cannot_write_to_the_brokers_topics(target: Target) -> None:
    """A batch for a topic that begins with `__` is refused with INVALID_TOPIC_EXCEPTION."""
    with target.connect() as wire:
        wire.call("FindCoordinator", [target.name("group")])
        equal(produce(wire, "__consumer_offsets", batch(b"a")).error_code, 17, "Produce")
        internal = [("__wire", 1, -1, (), ())]
        equal(codes(wire.call("CreateTopics", internal, True).topics), [17], "CreateTopics")
        own = "__consumer_offsets"
        equal(codes(wire.call("CreatePartitions", [(own, 99, ())], True).topics), [17], "widen")
        equal(codes(wire.call("AlterConfigs", [(own, ())], True).topics), [17], "AlterConfigs")
        equal(codes(wire.call("DescribeConfigs", [own, "a/b"], []).topics), [0, 3], "describe")


@check("W-6.6")
def a_name_that_may_stand_once_is_refused_twice(target: Target) -> None:
    """INVALID_REQUEST, and nothing is done."""
    with target.connect() as wire:
        name, topic = target.name(), target.topic(wire)
        new, made = (name, 1, -1, (), ()), batch(b"a")
        for api, values in (
            ("CreateTopics", ([new, new], False)),
            ("CreatePartitions", ([(topic, 2, ())] * 2, False)),
            ("AlterConfigs", ([(topic, [])] * 2, False)),
            ("Produce", (-1, 0, [(topic, 0, made)] * 2)),
            ("DeleteGroups", ([name, name],)),
        ):
            equal(wire.refusal(api, *values).code, INVALID_REQUEST, api)
        equal(wire.call("Metadata", [name]).topics[0].error_code, 3, "the topic's code")
        end = wire.call("ListOffsets", [(topic, 0, -1)]).partitions[0].offset
        equal(end, 0, "records appended")


@check("W-7.1")
def a_message_stands_beside_every_error_code(target: Target) -> None:
    """A result with code 0 has no message, one with another code has."""
    with target.connect() as wire:
        topic = target.topic(wire)
        results = wire.call("ListOffsets", [(topic, 0, -1), (topic, 7, -1)]).partitions
        equal(results[0].error_message, None, "the message of code 0")
        true(results[1].error_message, "no message beside code 3")
        true(wire.refusal("ListGroups", ["Asleep"]).message, "no message in a refusal")


@check("W-2.5", "W-3.5")
def every_api_refuses_a_body_of_rubbish(target: Target) -> None:
    """No body of 0xff bytes is a request; each is refused and the connection lives on."""
    with target.connect() as wire:
        for name, api in APIS.items():
            refused = wire.refusal_of(wire.send_body(api.key, b"\xff" * 24))
            equal(refused.code, INVALID_REQUEST, name)
