"""Checks of W-4.3, W-4.6 and W-5: produced batches, idempotence, what a broker stores."""

from __future__ import annotations

from tests.wire.batches import (
    Record,
    altered,
    batch,
    crc32c,
    field,
    read_varint,
    record_bytes,
    records_of,
    sealed,
    split,
    varint,
)
from tests.wire.check import Target, check, codes, equal, fetch, produce, true
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


@check("W-5", "W-5.5")
def a_batch_is_stored_as_it_was_sent(target: Target) -> None:
    """All bytes but base offset and leader epoch are the producer's."""
    with target.connect() as wire:
        topic = target.topic(wire)
        made = batch(b"a", None, b"", key=b"k", headers=[("h", b"1"), ("h", None)])
        for _ in range(2):
            produce(wire, topic, made)
        stored = split(fetch(wire, topic, 0).records)
        equal([field(s, "base_offset") for s in stored], [0, 3], "base offsets")
        equal([s[8:12] + s[16:] for s in stored], [made[8:12] + made[16:]] * 2, "the bytes")


@check("W-5.3")
def records_are_read_as_they_were_written(target: Target) -> None:
    """Null and empty keys and values, headers twice, timestamps of their own."""
    with target.connect() as wire:
        topic = target.topic(wire, message_timestamp_after_max_ms=str(2**63 - 1))
        headers = (("name", b"1"), ("name", None))
        produce(wire, topic, batch(b"", None, key=b"", headers=headers, timestamps=(7, 2**41)))
        (stored,) = split(fetch(wire, topic, 0).records)
        expected = [Record(0, 7, b"", b"", headers), Record(1, 2**41, b"", None, headers)]
        equal(records_of(stored), expected, "records")


@check("W-5.3.1", "W-5.1")
def the_checks_own_bytes_are_those_of_the_specification(target: Target) -> None:
    """The vectors of CRC-32C and of varints that the text has."""
    del target
    equal(crc32c(b"123456789"), 0xE3069283, "CRC-32C")
    vectors = {0: "00", -1: "01", 1: "02", -2: "03", 63: "7e", -64: "7f", 64: "8001"}
    for number, written in (vectors | {8191: "fe7f", 8192: "808001"}).items():
        equal(varint(number).hex(), written, f"varint {number}")
        equal(read_varint(varint(number), 0)[0], number, "read back")


@check("W-5.1", "W-5.6")
def a_wrong_crc_is_corrupt(target: Target) -> None:
    """CORRUPT_MESSAGE, the only code for a batch that may be sent again as it is."""
    with target.connect() as wire:
        topic, made = target.topic(wire), batch(b"value")
        flipped = made[:-1] + bytes([made[-1] ^ 1])
        equal(outcome(wire, topic, flipped), (CORRUPT_MESSAGE, -1), "a flipped bit")
        equal(outcome(wire, topic, made), (0, 0), "the batch itself")


@check("W-5.6")
def what_is_not_one_whole_batch_is_an_invalid_record(target: Target) -> None:
    """No batch, a part of one, two, another magic, a wrong length."""
    with target.connect() as wire:
        topic, made = target.topic(wire), batch(b"value")
        for broken in (
            *(b"", made[:60], made[:-1], made + b"\0", made + made),
            *(altered(made, False, magic=n) for n in (0, 1, 3)),
            *(altered(made, False, batch_length=n) for n in (-1, 48, 1_000)),
        ):
            equal(outcome(wire, topic, broken), (INVALID_RECORD, -1), broken[:21].hex(" "))


@check("W-5.2", "W-5.6")
def header_fields_that_a_client_may_not_set_are_an_invalid_record(target: Target) -> None:
    """Attributes but the codec, counts that disagree, times and producers that cannot be."""
    made = batch(b"a", b"b")
    bad = [{"attributes": 1 << bit} for bit in range(3, 15)]
    bad += [{"record_count": n} for n in (-1, 0, 1, 3)]
    bad += [{"last_offset_delta": n} for n in (-1, 0, 2)]
    bad += [{"base_timestamp": 2_000}, {"base_timestamp": -2}, {"max_timestamp": 999}]
    bad += [{"producer_id": -2}, {"producer_id": 5}, {"producer_epoch": 0}, {"base_sequence": 0}]
    bad += [{"base_offset": -1}]
    with target.connect() as wire:
        topic = target.topic(wire)
        for fields in bad:
            equal(
                outcome(wire, topic, altered(made, True, **fields)),
                (INVALID_RECORD, -1),
                f"{fields}",
            )


@check("W-5.6")
def a_record_count_that_the_bytes_cannot_hold_is_an_invalid_record(target: Target) -> None:
    """At least 7 bytes a record, times what the codec can make of one byte."""
    with target.connect() as wire:
        topic = target.topic(wire)
        for codec, growth in enumerate((1, 1_032, 22, 255, 32_768)):
            made, most = batch(b"", payload=bytes(70), codec=codec), 10 * growth
            for count, code in ((most + 1, INVALID_RECORD), (most, 0)):
                claimed = altered(made, record_count=count, last_offset_delta=count - 1)
                equal(outcome(wire, topic, claimed)[0], code, f"{count} records, codec {codec}")


@check("W-5.4", "W-5.6")
def a_codec_that_does_not_exist_is_refused(target: Target) -> None:
    """Codecs are 0 to 4; UNSUPPORTED_COMPRESSION_TYPE is for 5 to 7."""
    with target.connect() as wire:
        topic = target.topic(wire)
        for codec in (5, 6, 7):
            equal(outcome(wire, topic, altered(batch(b"a"), attributes=codec))[0], 76, f"{codec}")


@check("W-5.6", "W-6.7")
def a_batch_above_max_message_bytes_is_too_large(target: Target) -> None:
    """The setting counts the whole batch, header included."""
    with target.connect() as wire:
        made = batch(b"x" * 100)
        topic = target.topic(wire, max_message_bytes=str(len(made)))
        equal(outcome(wire, topic, batch(b"x" * 101)), (MESSAGE_TOO_LARGE, -1), "one byte more")
        equal(outcome(wire, topic, made), (0, 0), "the largest")


@check("W-5", "W-5.6")
def the_broker_does_not_decode_records(target: Target) -> None:
    """A payload that does not decode is stored; a reader skips it by `batch_length`."""
    with target.connect() as wire:
        topic = target.topic(wire)
        equal(outcome(wire, topic, batch(b"a", payload=b"\xff" * 20)), (0, 0), "rubbish")
        equal(outcome(wire, topic, batch(b"b")), (0, 1), "the next batch")
        rubbish, good = split(fetch(wire, topic, 0).records)
        equal(rubbish[61:], b"\xff" * 20, "the stored payload")
        equal([r.value for r in records_of(good)], [b"b"], "the next batch's records")


@check("W-4.10", "W-5.6")
def a_timestamp_far_from_the_brokers_clock_is_refused(target: Target) -> None:
    """INVALID_TIMESTAMP, as far as the topic's settings say."""
    with target.connect() as wire:
        topic, late = target.topic(wire), batch(b"a", timestamps=(2**41,))
        equal(outcome(wire, topic, late), (32, -1), "a timestamp of 2039")
        bounded = target.topic(wire, message_timestamp_before_max_ms="1000")
        equal(outcome(wire, bounded, batch(b"a")), (32, -1), "one of 1970")


@check("W-5.6")
def a_compacted_topic_takes_only_records_with_a_key_that_decode(target: Target) -> None:
    """INVALID_RECORD for a record without a key, and for a payload that cannot be read."""
    with target.connect() as wire:
        topic = target.topic(wire, cleanup_policy="compact")
        equal(outcome(wire, topic, batch(b"a")), (INVALID_RECORD, -1), "no key")
        broken = batch(b"a", payload=b"\xff" * 20)
        equal(outcome(wire, topic, broken), (INVALID_RECORD, -1), "rubbish")
        mixed = record_bytes(0, 0, b"k", b"v", []) + record_bytes(1, 0, None, b"v", [])
        made = batch(b"v", b"v", payload=mixed)
        equal(outcome(wire, topic, made), (INVALID_RECORD, -1), "one key of two")
        equal(outcome(wire, topic, batch(b"a", None, key=b"k")), (0, 0), "keys")


@check("W-5.5", "W-5.2")
def log_append_time_is_the_brokers(target: Target) -> None:
    """Bit 3 and `max_timestamp` are the broker's, the CRC is right, the response names the time."""
    with target.connect() as wire:
        topic = target.topic(wire, message_timestamp_type="LogAppendTime")
        result = produce(wire, topic, batch(b"a", b"b", timestamps=(5, 6)))
        true(result.log_append_time_ms > 10**12, "no time in the response")
        (stored,) = split(fetch(wire, topic, 0).records)
        found = (field(stored, "attributes"), field(stored, "max_timestamp"))
        equal(found, (8, result.log_append_time_ms), "attributes and max_timestamp")
        equal(sealed(stored), stored, "the sealed batch")
        times = {record.timestamp_ms for record in records_of(stored)}
        equal(times, {result.log_append_time_ms}, "timestamps of the records")
