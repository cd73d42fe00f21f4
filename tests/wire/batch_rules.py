"""Checks of W-5: record batches, as they are produced, checked and stored."""

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
from tests.wire.check import Target, check, equal, fetch, produce, true
from tests.wire.producing import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, outcome


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
    bad += [{"producer_id": -2}, {"producer_id": 5}, {"base_offset": -1}]
    unread = ({"producer_epoch": 0}, {"base_sequence": 0})
    with target.connect() as wire:
        topic = target.topic(wire)
        for fields in bad:
            equal(
                outcome(wire, topic, altered(made, True, **fields)),
                (INVALID_RECORD, -1),
                f"{fields}",
            )
        for offset, fields in enumerate(unread):
            made = batch(b"a")
            equal(outcome(wire, topic, altered(made, True, **fields)), (0, offset), f"{fields}")


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
