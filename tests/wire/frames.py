"""Checks of W-2 and W-3: frames, headers, refusals, order, and the types of bodies."""

from __future__ import annotations

import struct

from tests.wire.apis import APIS
from tests.wire.batches import batch
from tests.wire.check import Target, check, codes, equal, fetch, produce, true
from tests.wire.client import request_frame

INVALID_REQUEST, UNSUPPORTED_VERSION, UNKNOWN_API, FRAME_TOO_LARGE = 42, 35, 1002, 1003


@check("W-2.1")
def another_magic_closes(target: Target) -> None:
    """A frame whose bytes 4 and 5 are not `MR` closes the connection."""
    with target.connect() as wire:
        wire.write(b"\0\0\0\x0cXX" + bytes(10))
        equal(wire.until_closed(), b"", "bytes before the close")


@check("W-2.2")
def a_response_sent_to_a_broker_closes(target: Target) -> None:
    """Bit 15 of the api is 0 in a request."""
    with target.connect() as wire:
        wire.write(request_frame(0x8012, b""))
        equal(wire.until_closed(), b"", "bytes before the close")


@check("W-2.2")
def a_client_id_of_0_and_of_255_bytes_is_accepted(target: Target) -> None:
    """The size of a client id is 0 to 255."""
    body = APIS["Metadata"].request.encode([[]])
    with target.connect() as wire:
        for size in (0, 255):
            wire.write(request_frame(3, body, client_id=b"c" * size, correlation_id=size + 1))
            equal(wire.receive().correlation_id, size + 1, f"a client id of {size} bytes")


@check("W-2.2")
def a_client_id_of_another_size_or_not_utf_8_closes(target: Target) -> None:
    """A client id of 256 bytes, of -1, beyond the frame or not UTF-8 closes the connection."""
    beyond = struct.pack(">I2sHHIh", 12, b"MR", 3, 0, 1, 1)
    negative = struct.pack(">I2sHHIh", 16, b"MR", 3, 0, 1, -1) + bytes(4)
    for frame in (
        request_frame(3, b"\0\0\0\0", client_id=b"c" * 256),
        request_frame(3, b"\0\0\0\0", client_id=b"\xff\xfe"),
        beyond,
        negative,
    ):
        with target.connect() as wire:
            wire.write(frame)
            equal(wire.until_closed(), b"", f"bytes after {frame[:20].hex(' ')}")


@check("W-2.3")
def a_response_repeats_api_version_and_correlation_id(target: Target) -> None:
    """The response has the request's api with bit 15, its version and its correlation id."""
    with target.connect() as wire:
        body = APIS["Metadata"].request.encode([[]])
        for correlation_id in (0, 7, 2**32 - 1):
            wire.write(request_frame(3, body, correlation_id=correlation_id))
            response = wire.receive()
            found = (response.api, response.version, response.correlation_id)
            equal(found, (0x8003, 0, correlation_id), "api, version, correlation id")


@check("W-2.3", "W-2.4", "W-6.6")
def an_unknown_api_is_refused(target: Target) -> None:
    """An api that does not exist is refused with UNKNOWN_API, and the connection lives on."""
    with target.connect() as wire:
        for api in (999, 4, 0x7FFF):
            refused = wire.refusal_of(wire.send_body(api, b"?"))
            equal((refused.code, refused.versions), (UNKNOWN_API, (-1, -1)), f"api {api}")
        wire.call("Metadata", [])


@check("W-2.4", "W-4.1", "W-6.6", "W-1.5")
def an_unknown_version_is_refused_with_the_range(target: Target) -> None:
    """A version outside the range is refused with UNSUPPORTED_VERSION and the range."""
    with target.connect() as wire:
        assert wire.hello is not None
        for api in wire.hello.apis:
            sent = wire.send_body(api.api, b"", version=api.max_version + 1)
            refused = wire.refusal_of(sent)
            expected = (UNSUPPORTED_VERSION, (api.min_version, api.max_version))
            equal((refused.code, refused.versions), expected, f"api {api.api}")


@check("W-2.5", "W-6.6")
def bytes_behind_a_body_are_refused(target: Target) -> None:
    """A body takes exactly the rest of the frame."""
    body = APIS["Metadata"].request.encode([[]])
    with target.connect() as wire:
        for broken in (body + b"\0", body[:-1], b""):
            refused = wire.refusal_of(wire.send_body(3, broken))
            equal(refused.code, INVALID_REQUEST, f"a body of {len(broken)} bytes")
        wire.call("Metadata", [])


@check("W-2.6")
def responses_come_in_the_order_of_the_requests(target: Target) -> None:
    """A request that waits holds back the responses behind it; the order is the requests'."""
    with target.connect() as wire:
        topic = target.topic(wire)
        sent = [wire.send("Fetch", 200, 1, 1 << 20, [(topic, 0, -1, 0, 1 << 20)], None)]
        sent += [wire.send("Metadata", []) for _ in range(5)]
        for each in sent:
            wire.answer(each)


@check("W-2.6", "W-4.3.1")
def pipelined_produces_to_a_partition_take_effect_in_order(target: Target) -> None:
    """Produce requests to one partition are appended in the order of the connection."""
    with target.connect() as wire:
        topic = target.topic(wire)
        sent = [wire.send("Produce", -1, 30_000, [(topic, 0, batch(b"%d" % n))]) for n in range(50)]
        offsets = [wire.answer(each).partitions[0].base_offset for each in sent]
        equal(offsets, list(range(50)), "base offsets")


@check("W-2.6")
def an_effect_is_there_when_its_response_is(target: Target) -> None:
    """A request sent after the response of another sees that one's effect."""
    with target.connect() as wire, target.connect() as other:
        for _ in range(20):
            topic = target.topic(wire)
            produce(wire, topic, batch(b"a"))
            listed = other.call("ListOffsets", [(topic, 0, -1)]).partitions[0]
            equal((listed.error_code, listed.offset), (0, 1), "the end after the response")


@check("W-6.6.1", "W-2.4")
def a_refusal_changes_nothing_for_its_neighbours(target: Target) -> None:
    """Requests before and behind a refused one are answered as if it had not been there."""
    with target.connect() as wire:
        topic = target.topic(wire)
        first = wire.send("Produce", -1, 30_000, [(topic, 0, batch(b"a"))])
        refused = [wire.send_body(999, b""), wire.send_body(1, b"\xff"), wire.send_body(0, b"")]
        last = wire.send("Produce", -1, 30_000, [(topic, 0, batch(b"b"))])
        equal(wire.answer(first).partitions[0].base_offset, 0, "the first offset")
        found = [wire.refusal_of(each).code for each in refused]
        equal(found, [UNKNOWN_API, INVALID_REQUEST, INVALID_REQUEST], "the refusals")
        equal(wire.answer(last).partitions[0].base_offset, 1, "the last offset")


@check("W-2.1")
def frames_may_arrive_byte_by_byte(target: Target) -> None:
    """A frame is the same whatever the segments it arrives in."""
    with target.connect() as wire:
        for byte in request_frame(3, APIS["Metadata"].request.encode([[]]), correlation_id=9):
            wire.write(bytes([byte]))
        equal(wire.receive().correlation_id, 9, "correlation id")


@check("W-3.2")
def a_boolean_is_0_or_1(target: Target) -> None:
    """Another byte where a boolean stands is refused."""
    with target.connect() as wire:
        body = APIS["CreateTopics"].request.encode([[], False])
        refused = wire.refusal_of(wire.send_body(19, body[:-1] + b"\2"))
        equal(refused.code, INVALID_REQUEST, "a boolean of 2")


@check("W-3.3")
def a_string_is_utf_8_and_not_negative(target: Target) -> None:
    """A string that is null, of a negative size, cut short or not UTF-8 is refused."""
    with target.connect() as wire:
        for string in (b"\xff\xff", b"\x80\0", b"\0\5ab", b"\0\1\xff"):
            refused = wire.refusal_of(wire.send_body(20, b"\0\0\0\1" + string))
            equal(refused.code, INVALID_REQUEST, string.hex(" "))


@check("W-3.3")
def a_string_may_have_32767_bytes(target: Target) -> None:
    """The longest string is read; it is no topic's name."""
    with target.connect() as wire:
        found = wire.call("DescribeConfigs", ["x" * 32_767], []).topics[0]
        true(found.error_code != 0, "a topic of 32,767 characters")


@check("W-3.4")
def bytes_of_a_negative_size_are_refused(target: Target) -> None:
    """`records` is not nullable."""
    with target.connect() as wire:
        topic = target.topic(wire)
        body = APIS["Produce"].request.encode([-1, 0, [(topic, 0, b"")]])
        refused = wire.refusal_of(wire.send_body(0, body[:-4] + b"\xff\xff\xff\xff"))
        equal(refused.code, INVALID_REQUEST, "records of size -1")


@check("W-3.5", "W-6.4")
def a_request_names_at_most_2000_entries(target: Target) -> None:
    """An array of 2,001 elements refuses the request, one of 2,000 does not."""
    with target.connect() as wire:
        entries = [("nope", n, -1, 0, 1) for n in range(2_001)]
        refused = wire.refusal("Fetch", 0, 0, 1, entries, None)
        equal(refused.code, INVALID_REQUEST, "2,001 partitions")
        equal(len(wire.call("Fetch", 0, 0, 1, entries[1:], None).partitions), 2_000, "results")


@check("W-3.5")
def a_count_beyond_the_body_is_refused(target: Target) -> None:
    """A count is checked against the bytes that are left; -1 is null only where that is allowed."""
    with target.connect() as wire:
        for count in (-2, 1_000, 2**31 - 1):
            refused = wire.refusal_of(wire.send_body(3, struct.pack(">i", count)))
            equal(refused.code, INVALID_REQUEST, f"a count of {count}")
        refused = wire.refusal_of(wire.send_body(20, struct.pack(">i", -1)))
        equal(refused.code, INVALID_REQUEST, "null where an array may not be null")


@check("W-3.5")
def all_arrays_of_a_request_hold_at_most_4000_elements(target: Target) -> None:
    """Arrays inside arrays count together."""
    configs = [("retention.ms", "1")] * 1_999
    with target.connect() as wire:
        topics = [(target.name(), 1, -1, configs, ()) for _ in range(3)]
        refused = wire.refusal("CreateTopics", topics, True)
        equal(refused.code, INVALID_REQUEST, "6,000 elements")


@check("W-4.0.2")
def results_stand_in_the_order_of_the_request(target: Target) -> None:
    """One result for each entry, in its order."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=3)
        entries = [(topic, n, -1) for n in (2, 0, 9, 1, 0)]
        results = wire.call("ListOffsets", entries).partitions
        equal([r.partition for r in results], [2, 0, 9, 1, 0], "partitions")
        equal(codes(results), [0, 0, 3, 0, 0], "codes")
        equal(fetch(wire, topic, 0).error_code, 0, "Fetch")
