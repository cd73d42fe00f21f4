"""Checks of W-4.4, W-4.5, W-4.23 and W-4.37: fetches, offsets by time, ranges, epochs."""

from __future__ import annotations

from tests.wire.batches import HEADER_BYTES, altered, batch, records_of, split
from tests.wire.check import Target, check, codes, equal, fetch, offset_at, produce, true
from tests.wire.client import Connection

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_LEADER_EPOCH = 75


def filled(target: Target, wire: Connection, count: int, size: int = 100) -> tuple[str, int]:
    """A topic with `count` batches of one record; its name, and the bytes of one batch."""
    topic, made = target.topic(wire), batch(b"x" * size)
    for _ in range(count):
        produce(wire, topic, made)
    return topic, len(made)


@check("W-4.4.1")
def a_fetch_returns_whole_batches_from_the_one_with_the_offset(target: Target) -> None:
    """The first batch may begin before `fetch_offset`."""
    with target.connect() as wire:
        topic = target.topic(wire)
        for _ in range(2):
            produce(wire, topic, batch(b"a", b"b", b"c"))
        found = split(fetch(wire, topic, 4).records)
        equal([[r.offset for r in records_of(b)] for b in found], [[3, 4, 5]], "offsets")


@check("W-4.4.2")
def the_first_batch_comes_whole_even_when_it_is_too_large(target: Target) -> None:
    """A consumer cannot get stuck at a batch above its bounds."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 2)
        equal(len(fetch(wire, topic, 0, max_bytes=1).records), size, "the partition's bound")
        whole = wire.call("Fetch", 0, 0, 1, [(topic, 0, -1, 0, 1 << 20)], None).partitions[0]
        equal(len(whole.records), size, "the request's bound")


@check("W-4.4.2")
def batches_are_cut_only_between_them(target: Target) -> None:
    """A fetch of two and a half batches returns two."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 4)
        equal(len(fetch(wire, topic, 0, max_bytes=size * 5 // 2).records), 2 * size, "bytes")


@check("W-4.4.2")
def partitions_are_filled_in_order_until_max_bytes(target: Target) -> None:
    """When `max_bytes` is used up the partitions that are left are empty, without an error."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=3)
        produce(wire, topic, *[batch(b"a")] * 3)
        entries = [(topic, n, -1, 0, 1 << 20) for n in (2, 0, 1)]
        found = wire.call("Fetch", 0, 0, 10, entries, None).partitions
        equal([bool(p.records) for p in found], [True, False, False], "partitions with records")
        equal([(p.error_code, p.high_watermark) for p in found], [(0, 1)] * 3, "the rest")


@check("W-4.4.3")
def the_end_of_the_log_is_an_empty_answer(target: Target) -> None:
    """At the high watermark there is nothing new, and no error."""
    with target.connect() as wire:
        topic, _ = filled(target, wire, 2)
        end = fetch(wire, topic, 2)
        found = (end.error_code, end.records, end.high_watermark, end.log_start_offset)
        equal(found, (0, b"", 2, 0), "code, records, high watermark, log start")


@check("W-4.4.4")
def a_long_poll_is_answered_when_data_arrives(target: Target) -> None:
    """The answer comes with the data, long before `max_wait_ms`."""
    with target.connect() as wire, target.connect() as other:
        topic = target.topic(wire)
        sent = wire.send("Fetch", 600_000, 1, 1 << 20, [(topic, 0, -1, 0, 1 << 20)], None)
        produce(other, topic, batch(b"a"))
        true(wire.answer(sent).partitions[0].records, "no records")


@check("W-4.4.4")
def a_long_poll_ends_after_max_wait(target: Target) -> None:
    """With less than `min_bytes` the answer comes when the time is over, with what there is."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 1)
        found = wire.call("Fetch", 50, 1 << 20, 1 << 20, [(topic, 0, -1, 0, 1 << 20)], None)
        equal(len(found.partitions[0].records), size, "bytes")


@check("W-4.4.4")
def min_bytes_is_capped_by_what_the_answer_may_hold(target: Target) -> None:
    """A fetch whose bounds are full does not wait for more."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 2)
        entry = (topic, 0, -1, 0, 1 << 20)
        found = wire.call("Fetch", 600_000, 1 << 20, size, [entry], None).partitions[0]
        equal(len(found.records), size, "bytes")


@check("W-4.4.4")
def a_fetch_does_not_wait_when_a_partition_has_an_error(target: Target) -> None:
    """Nor with a `max_wait_ms` or `min_bytes` of 0."""
    with target.connect() as wire:
        topic = target.topic(wire)
        entry = (topic, 0, -1, 0, 1 << 20)
        entries = [entry, (target.name(), 0, -1, 0, 1 << 20)]
        equal(codes(wire.call("Fetch", 600_000, 1, 1, entries, None).partitions), [0, 3], "codes")
        equal(
            codes(wire.call("Fetch", 600_000, 0, 1, [entry], None).partitions), [0], "min_bytes 0"
        )
        equal(codes(wire.call("Fetch", 0, 1, 1, [entry], None).partitions), [0], "max_wait_ms 0")


@check("W-4.4.5")
def an_offset_outside_is_refused_with_the_range(target: Target) -> None:
    """OFFSET_OUT_OF_RANGE; high watermark and log start are in the result all the same."""
    with target.connect() as wire:
        topic, _ = filled(target, wire, 2)
        for offset in (3, -1, 2**63 - 1):
            found = fetch(wire, topic, offset)
            result = (found.error_code, found.high_watermark, found.log_start_offset, found.records)
            equal(result, (OFFSET_OUT_OF_RANGE, 2, 0, b""), f"offset {offset}")


@check("W-4.4.6")
def a_leader_epoch_is_compared(target: Target) -> None:
    """A newer one is UNKNOWN_LEADER_EPOCH, an older one FENCED_LEADER_EPOCH."""
    with target.connect() as wire:
        topic, _ = filled(target, wire, 1)
        epoch = wire.call("Metadata", [topic]).topics[0].partitions[0].leader_epoch
        equal(fetch(wire, topic, 0, leader_epoch=epoch).error_code, 0, "the broker's epoch")
        equal(fetch(wire, topic, 0, leader_epoch=epoch + 1).error_code, 75, "a newer epoch")
        equal(fetch(wire, topic, 0, leader_epoch=-2).error_code, 74, "an older epoch")


@check("W-4.5.1")
def offsets_have_names(target: Target) -> None:
    """-1 is the high watermark, -2 the first offset, -3 the largest timestamp."""
    with target.connect() as wire:
        topic = target.topic(wire)
        equal([offset_at(wire, topic, n) for n in (-1, -2, -3, 0)], [(0, 0, -1)] * 2
              + [(0, -1, -1)] * 2, "an empty partition")  # fmt: skip
        for timestamp_ms in (1_000, 3_000, 3_000, 2_000):
            produce(wire, topic, batch(b"a", b"b", timestamps=(timestamp_ms, timestamp_ms)))
        expected = [(0, 8, -1), (0, 0, -1), (0, 2, 3_000)]
        equal([offset_at(wire, topic, n) for n in (-1, -2, -3)], expected, "four batches")


@check("W-4.5.1")
def offsets_are_found_by_time(target: Target) -> None:
    """The first record whose timestamp is at least the one asked for."""
    with target.connect() as wire:
        topic = target.topic(wire)
        produce(wire, topic, batch(b"a", b"b", b"c", timestamps=(1_000, 2_000, 3_000)))
        produce(wire, topic, batch(b"d", timestamps=(2_500,)))
        asked = (0, 1_000, 1_001, 2_000, 3_000, 3_001)
        expected = [(0, 0, 1_000)] * 2 + [(0, 1, 2_000)] * 2 + [(0, 2, 3_000), (0, -1, -1)]
        equal([offset_at(wire, topic, n) for n in asked], expected, "by time")


@check("W-4.5.1")
def other_timestamps_are_refused(target: Target) -> None:
    """Below -3 it is INVALID_REQUEST, for that entry alone."""
    with target.connect() as wire:
        topic = target.topic(wire)
        entries = [(topic, 0, -4), (topic, 0, -(2**63)), (topic, 0, -1), (target.name(), 0, -1)]
        equal(codes(wire.call("ListOffsets", entries).partitions), [42, 42, 0, 3], "codes")


@check("W-4.5.1", "W-5.6")
def a_claimed_max_timestamp_does_not_hide_the_largest(target: Target) -> None:
    """-3 answers a record that is there, whatever a header claims."""
    with target.connect() as wire:
        topic = target.topic(wire, message_timestamp_after_max_ms=str(2**63 - 1))
        produce(wire, topic, altered(batch(b"a", b"b", timestamps=(1, 2)), max_timestamp=2**62))
        produce(wire, topic, batch(b"c"))
        equal(offset_at(wire, topic, -3), (0, 1, 2), "the largest timestamp")


@check("W-4.5.1")
def a_batch_that_cannot_be_read_stands_for_itself(target: Target) -> None:
    """Its first offset and its `max_timestamp` are the answer."""
    with target.connect() as wire:
        topic = target.topic(wire)
        produce(wire, topic, batch(b"a", b"b", payload=b"\xff" * 20, timestamps=(5_000, 6_000)))
        equal(offset_at(wire, topic, 5_500), (0, 0, 6_000), "by time")


@check("W-4.23.1", "W-4.23.2")
def pieces_follow_each_other_and_end_with_the_range(target: Target) -> None:
    """No gaps, each but the last of `piece_bytes` or more, cut between batches."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 200, 1_000)
        asked = [(topic, 0, 10, 190, 20_000)]
        found = wire.call("SplitRanges", asked).partitions[0]
        ends = [piece.end_offset for piece in found.pieces]
        true(len(ends) > 2 and ends == sorted(set(ends)) and ends[0] > 10, f"ends {ends}")
        equal(ends[-1], 190, "the last end")
        most = 20_000 + 4_096 + size
        sizes = [piece.size_bytes for piece in found.pieces]
        true(all(20_000 <= each < most for each in sizes[:-1]), f"sizes {sizes}")


@check("W-4.23.3")
def ranges_that_cannot_be_are_refused(target: Target) -> None:
    """Out of the log, backwards, pieces of no bytes; an empty range has no pieces."""
    with target.connect() as wire:
        topic, _ = filled(target, wire, 3)
        ranges = [(0, 4, 1), (-1, 3, 1), (2, 1, 1), (0, 3, 0), (2, 2, 1), (0, 3, 1)]
        found = wire.call("SplitRanges", [(topic, 0, *each) for each in ranges]).partitions
        equal(codes(found), [1, 1, 42, 42, 0, 0], "codes")
        equal([bool(each.pieces) for each in found], [False] * 5 + [True], "pieces")
        equal(codes(wire.call("SplitRanges", [(target.name(), 0, 0, 1, 1)]).partitions), [3], "")


@check("W-4.4", "W-4.4.1")
def a_fetch_may_name_a_partition_twice(target: Target) -> None:
    """Each entry is answered for itself."""
    with target.connect() as wire:
        topic, size = filled(target, wire, 2)
        entries = [(topic, 0, -1, offset, 1 << 20) for offset in (1, 0)]
        found = wire.call("Fetch", 0, 0, 1 << 20, entries, None).partitions
        equal([len(each.records) for each in found], [size, 2 * size], "bytes")
        true(size > HEADER_BYTES, "a batch is longer than its header")


@check("W-4.37", "W-4.37.1")
def the_latest_epoch_ends_where_the_log_ends(target: Target) -> None:
    """And no epoch has none."""
    with target.connect() as wire:
        topic = target.topic(wire)
        produce(wire, topic, batch(b"a"))
        produce(wire, topic, batch(b"b"))
        (metadata,) = wire.call("Metadata", [topic]).topics
        epoch = metadata.partitions[0].leader_epoch
        asked = [(topic, 0, epoch, epoch), (topic, 0, -1, epoch + 7), (topic, 0, -1, -1)]
        found = wire.call("OffsetForLeaderEpoch", asked).partitions
        equal(codes(found), [0, 0, 0], "the codes")
        ends = [(each.leader_epoch, each.end_offset) for each in found]
        equal(ends, [(epoch, 2), (epoch, 2), (-1, -1)], "the ends")


@check("W-4.37.3")
def a_current_leader_epoch_that_is_newer_is_unknown(target: Target) -> None:
    """So is a partition that does not exist."""
    with target.connect() as wire:
        topic = target.topic(wire)
        (metadata,) = wire.call("Metadata", [topic]).topics
        epoch = metadata.partitions[0].leader_epoch
        asked = [(topic, 0, epoch + 1, epoch), (topic, 9, -1, 0)]
        found = wire.call("OffsetForLeaderEpoch", asked).partitions
        equal(codes(found), [UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION], "the codes")
