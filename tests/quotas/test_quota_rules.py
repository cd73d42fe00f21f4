"""Quotas as a pure core: whose quota holds, what may be set, and what a bucket lets through."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.metadata_records import (
    ClientQuotaRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from millrace_server.metadata.client_quotas import (
    ENTITIES_MAX,
    Alteration,
    Entity,
    Quota,
    QuotaSet,
    alter_quotas,
    described_quotas,
    entity_of,
)
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot
from millrace_server.token_bucket import TokenBucket

NAMES = st.sampled_from(["ada", "bob", None])
ENTITIES: st.SearchStrategy[Entity] = st.one_of(
    NAMES.map(lambda user: (("user", user),)),
    NAMES.map(lambda client_id: (("client-id", client_id),)),
    st.tuples(NAMES, NAMES).map(lambda both: (("client-id", both[0]), ("user", both[1]))),
)
KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
CLIENTS = st.sampled_from(["ada", "bob", "eve"])
CHANGES = st.lists(st.tuples(ENTITIES, KEYS, st.none() | st.integers(1, 9)), max_size=30)


def image_with(changes: list[tuple[Entity, str, int | None]]) -> ClusterImage:
    """The image after changes, through records as they are in the log."""
    image = ClusterImage()
    for offset, (entity, key, value) in enumerate(changes):
        records, [refused] = alter_quotas(image.quotas, [Alteration(entity, [(key, value)])])
        assert refused is None
        delta = Delta(image)
        for record in records:
            delta.replay(decode_metadata_record(encode_metadata_record(record)))
        image = delta.image(offset + 1)
    return image


def of_kafka(
    entities: dict[Entity, dict[str, float]], user: str, client_id: str, key: str
) -> object:
    """KIP-55's order, written down: the first that has a value, and who shares it."""
    order: list[tuple[Entity, tuple[str | None, str | None]]] = [
        ((("client-id", client_id), ("user", user)), (user, client_id)),
        ((("client-id", None), ("user", user)), (user, client_id)),
        ((("user", user),), (user, None)),
        ((("client-id", client_id), ("user", None)), (user, client_id)),
        ((("client-id", None), ("user", None)), (user, client_id)),
        ((("user", None),), (user, None)),
        ((("client-id", client_id),), (None, client_id)),
        ((("client-id", None),), (None, client_id)),
    ]
    for entity, shared_by in order:
        if key in entities.get(entity, {}):
            return Quota(shared_by, entities[entity][key])
    return None


@given(CHANGES, CLIENTS, CLIENTS, KEYS)
def test_a_client_has_the_quota_of_the_first_entity_that_has_one(
    changes: list[tuple[Entity, str, int | None]], user: str, client_id: str, key: str
) -> None:
    entities: dict[Entity, dict[str, float]] = {}
    for entity, name, value in changes:
        values = entities.setdefault(entity, {})
        values.pop(name, None)
        if value is not None:
            values[name] = value
    found = image_with(changes).quotas.of_client(user, client_id)
    assert found.get(key) == of_kafka(entities, user, client_id, key)


@given(CHANGES)
def test_quotas_are_in_snapshots(changes: list[tuple[Entity, str, int | None]]) -> None:
    image = image_with(changes)
    read = decode_snapshot(encode_snapshot(image, now_ms=0), end_offset=image.end_offset)
    assert read.quotas == image.quotas
    assert dict(described_quotas(read.quotas, [], strict=False)) == dict(image.quotas.entities)


def test_there_are_at_most_so_many_entities() -> None:
    one = {"request_percentage": 1.0}
    full = QuotaSet({(("user", f"u{n}"),): one for n in range(ENTITIES_MAX)})
    more = Alteration([("user", "one more")], [("request_percentage", 1.0)])
    known = Alteration([("user", "u7")], [("request_percentage", 2.0)])
    nothing = Alteration([("user", "other")], [("request_percentage", None)])
    records, refused = alter_quotas(full, [more, known, nothing])
    assert refused[0] is not None
    assert "as many as a cluster keeps" in str(refused[0].message)
    assert refused[1:] == [None, None]
    assert [type(each) for each in records] == [ClientQuotaRecord]


def test_an_address_is_written_in_one_way() -> None:
    assert entity_of([("ip", "0:0:0:0:0:0:0:1")]) == (("ip", "::1"),)
    assert entity_of([("ip", None)]) == (("ip", None),)


@given(
    st.floats(0.01, 1e9),
    st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 1e7)), min_size=1, max_size=50),
)
def test_a_bucket_lets_through_its_rate_a_burst_and_what_was_counted_last(
    rate: float, steps: list[tuple[int, float]]
) -> None:
    bucket = TokenBucket(rate, now_ms=0, burst_ms=200)
    now_ms = taken = last = 0.0
    for pause_ms, count in steps:
        now_ms = max(now_ms + pause_ms, bucket.ready_ms(now_ms=int(now_ms)))
        allowed = rate * (now_ms + 200) / 1000 + last
        assert taken <= allowed or math.isclose(taken, allowed, rel_tol=1e-6)
        bucket.take(count, now_ms=int(now_ms))
        taken += count
        last = count


def test_a_bucket_never_waits_below_its_rate() -> None:
    bucket = TokenBucket(1_000, now_ms=0, burst_ms=200)
    for now_ms in range(0, 60_000, 100):
        assert bucket.ready_ms(now_ms=now_ms) == now_ms
        bucket.take(99, now_ms=now_ms)


def test_a_rate_that_changes_counts_from_then_on() -> None:
    bucket = TokenBucket(1_000, now_ms=0)
    bucket.take(3_000, now_ms=0)
    assert bucket.ready_ms(now_ms=0) == 2_001
    bucket.rate = 10_000
    assert bucket.ready_ms(now_ms=0) == 201


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_a_bucket_needs_a_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        TokenBucket(rate, now_ms=0)
