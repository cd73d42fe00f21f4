"""Checks of W-4.3 and W-4.6: produced batches, acks, idempotence."""

from __future__ import annotations

from tests.wire.batches import (
    altered,
    batch,
)
from tests.wire.check import Target, check, codes, equal, produce, true
from tests.wire.client import Connection

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD = 2, 10, 87
OUT_OF_ORDER, FENCED, UNKNOWN_PRODUCER = 45, 47, 59


def identity(wire: Connection, producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
    """A producer id and epoch from InitProducerId."""
    given = wire.call("InitProducerId", producer_id, epoch)
    return given.producer_id, given.producer_epoch


def outcome(wire: Connection, topic: str, made: bytes) -> tuple[int, int]:
    """Error code and base offset of a batch."""
    result = produce(wire, topic, made)
    return result.error_code, result.base_offset


@check("W-4.3.1")
def records_get_consecutive_offsets(target: Target) -> None:
    """The records of a batch have `base_offset` to `base_offset + record_count - 1`."""
    with target.connect() as wire:
        topic = target.topic(wire)
        for offset, count in ((0, 3), (3, 1), (4, 20)):
            result = produce(wire, topic, batch(*[b"v"] * count))
            found = (result.error_code, result.base_offset, result.log_start_offset)
            equal(found, (0, offset, 0), "code, base offset and log start")
            equal((result.error_message, result.log_append_time_ms), (None, -1), "the rest")


@check("W-4.3.1")
def a_batch_may_be_refused_and_the_others_appended(target: Target) -> None:
    """Each partition stands for itself."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=3)
        good, bad = batch(b"a"), altered(batch(b"b"), False, crc=1)
        partitions = [(topic, 2, good), (topic, 1, bad), (target.name(), 0, good), (topic, 3, good)]
        results = wire.call("Produce", -1, 30_000, partitions).partitions
        equal(codes(results), [0, CORRUPT_MESSAGE, 3, 3], "codes")
        equal([r.base_offset for r in results], [0, -1, -1, -1], "base offsets")


@check("W-4.3.2")
def acks_1_and_all_are_answered(target: Target) -> None:
    """Both are answered with offsets."""
    with target.connect() as wire:
        topic = target.topic(wire)
        equal([produce(wire, topic, batch(b"a"), acks=n).base_offset for n in (1, -1)], [0, 1], "")


@check("W-4.3.2")
def acks_0_has_no_response(target: Target) -> None:
    """The next response is that of the next request, and the record is there."""
    with target.connect() as wire:
        topic = target.topic(wire)
        wire.send("Produce", 0, 0, [(topic, 0, batch(b"a"))])
        equal(produce(wire, topic, batch(b"b")).base_offset, 1, "the next offset")


@check("W-4.3.2", "W-6.6")
def a_refused_batch_with_acks_0_closes(target: Target) -> None:
    """That is the only sign of it."""
    with target.connect() as wire:
        wire.send("Produce", 0, 0, [(target.name(), 0, batch(b"a"))])
        equal(wire.until_closed(), b"", "bytes before the close")


@check("W-4.3.2")
def a_request_with_acks_0_that_is_refused_whole_is_answered(target: Target) -> None:
    """A refusal is sent whatever `acks` says."""
    with target.connect() as wire:
        entry = (target.name(), 0, batch(b"a"))
        equal(wire.refusal("Produce", 0, 0, [entry, entry]).code, 42, "a partition twice")


@check("W-4.3.2")
def other_acks_are_refused(target: Target) -> None:
    """INVALID_REQUIRED_ACKS, and nothing is appended."""
    with target.connect() as wire:
        topic = target.topic(wire)
        for acks in (2, -2, 32_767):
            equal(wire.refusal("Produce", acks, 0, [(topic, 0, batch(b"a"))]).code, 21, f"{acks}")
        equal(produce(wire, topic, batch(b"b")).base_offset, 0, "the first offset")


@check("W-4.3.4")
def a_repeated_batch_is_appended_once(target: Target) -> None:
    """Each of the last five batches is answered with the offset it has."""
    with target.connect() as wire:
        topic = target.topic(wire)
        who = identity(wire)
        made = [batch(b"a", b"b", producer=(*who, 2 * n)) for n in range(6)]
        equal([outcome(wire, topic, m) for m in made], [(0, 2 * n) for n in range(6)], "first")
        again = [outcome(wire, topic, m) for m in made[1:]]
        equal(again, [(0, 2 * n) for n in range(1, 6)], "again")
        equal(outcome(wire, topic, made[0]), (OUT_OF_ORDER, -1), "the sixth last batch")
        end = wire.call("ListOffsets", [(topic, 0, -1)]).partitions[0].offset
        equal(end, 12, "the end of the partition")


@check("W-4.3.4")
def a_gap_in_the_sequence_is_refused(target: Target) -> None:
    """Any sequence but the next is OUT_OF_ORDER_SEQUENCE_NUMBER; sequences count per partition."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=2)
        who = identity(wire)
        equal(outcome(wire, topic, batch(b"a", producer=(*who, 0))), (0, 0), "sequence 0")
        for sequence in (2, 2**31 - 1):
            made = batch(b"b", producer=(*who, sequence))
            equal(outcome(wire, topic, made), (OUT_OF_ORDER, -1), f"sequence {sequence}")
        made = batch(b"a", producer=(*who, 0))
        entry = wire.call("Produce", -1, 30_000, [(topic, 1, made)]).partitions[0]
        equal(entry.error_code, 0, "sequence 0 in another partition")


@check("W-4.3.4")
def an_unknown_producer_begins_at_sequence_0(target: Target) -> None:
    """An id that the partition does not know is UNKNOWN_PRODUCER_ID at any other sequence."""
    with target.connect() as wire:
        topic = target.topic(wire)
        who = identity(wire)
        made = batch(b"a", producer=(*who, 5))
        equal(outcome(wire, topic, made), (UNKNOWN_PRODUCER, -1), "sequence 5")
        equal(outcome(wire, topic, batch(b"a", producer=(*who, 0))), (0, 0), "sequence 0")


@check("W-4.3.4")
def an_id_that_was_never_given_is_refused(target: Target) -> None:
    """Also at sequence 0."""
    with target.connect() as wire:
        made = batch(b"a", producer=(10**15, 0, 0))
        equal(outcome(wire, target.topic(wire), made), (UNKNOWN_PRODUCER, -1), "the batch")


@check("W-4.3.4")
def a_sequence_wraps_to_0(target: Target) -> None:
    """After 2147483647 comes 0. The largest batch that a broker may refuse is far below that."""
    with target.connect() as wire:
        topic = target.topic(wire, max_message_bytes=str(1 << 20))
        who = identity(wire)
        # The largest counts that a header may have (W-5.6), over bytes that nothing reads.
        sequence, count = 0, 19_173_961
        made = batch(b"", payload=bytes(4_096), codec=4)
        while sequence + count <= 2**31:
            claimed = altered(
                made,
                record_count=count,
                last_offset_delta=count - 1,
                producer_id=who[0],
                producer_epoch=who[1],
                base_sequence=sequence,
            )
            equal(produce(wire, topic, claimed).error_code, 0, f"sequence {sequence}")
            sequence += count
        rest = altered(
            made,
            record_count=2**31 - sequence,
            last_offset_delta=2**31 - sequence - 1,
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=sequence,
        )
        equal(produce(wire, topic, rest).error_code, 0, "up to 2147483647")
        equal(produce(wire, topic, batch(b"a", producer=(*who, 0))).error_code, 0, "sequence 0")


@check("W-4.3.4", "W-4.6")
def a_new_epoch_begins_at_0_and_fences_the_old_one(target: Target) -> None:
    """The old epoch is INVALID_PRODUCER_EPOCH in every partition from InitProducerId on."""
    with target.connect() as wire:
        topic = target.topic(wire)
        old = identity(wire)
        equal(outcome(wire, topic, batch(b"a", producer=(*old, 0))), (0, 0), "the old epoch")
        new = identity(wire, *old)
        true(new[0] != old[0] or new[1] > old[1], f"{old} was given again")
        equal(outcome(wire, topic, batch(b"b", producer=(*old, 1))), (FENCED, -1), "fenced")
        code = outcome(wire, topic, batch(b"b", producer=(*new, 1)))[0]
        true(code in (OUT_OF_ORDER, UNKNOWN_PRODUCER), f"sequence 1 of the new epoch: {code}")
        equal(outcome(wire, topic, batch(b"b", producer=(*new, 0))), (0, 1), "the new epoch")


@check("W-4.6")
def no_identity_is_given_twice(target: Target) -> None:
    """New ids differ; two holders of an epoch get two epochs."""
    with target.connect() as wire:
        ids = [identity(wire) for _ in range(5)]
        equal((len(set(ids)), {epoch for _, epoch in ids}), (5, {0}), "new ids and their epochs")
        given = [identity(wire, *ids[0]) for _ in range(3)]
        equal(len({*given, ids[0]}), 4, f"different identities of {given}")


@check("W-4.6", "W-4.3.4")
def every_identity_that_is_given_may_write(target: Target) -> None:
    """Whatever epoch the request named, the batches of the answer's epoch are accepted."""
    with target.connect() as wire:
        topic = target.topic(wire)
        producer_id, _ = identity(wire)
        for epoch in (5, 0, -1, 32_767):
            given = identity(wire, producer_id, epoch)
            equal(outcome(wire, topic, batch(b"a", producer=(*given, 0)))[0], 0, f"{given}")


@check("W-4.6")
def an_id_that_was_never_given_or_is_used_up_gets_a_new_one(target: Target) -> None:
    """The answer is another id, with epoch 0."""
    with target.connect() as wire:
        mine, _ = identity(wire)
        for producer_id, epoch in ((10**15, 3), (mine, 32_767)):
            given = identity(wire, producer_id, epoch)
            true(given[0] not in (producer_id, mine), f"{producer_id} got {given}")
            equal(given[1], 0, "the epoch of a new id")
