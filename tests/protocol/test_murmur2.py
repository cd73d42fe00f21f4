"""Keys land where every other Kafka client puts them."""

import warnings

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records.murmur2 import HOT_KEY_BYTES_MAX, murmur2, partition_for_key

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function when it is first imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

# From Kafka's own UtilsTest.testMurmur2, whose numbers are signed.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_VECTORS)
def test_the_hash_is_the_one_of_the_java_client(key: bytes) -> None:
    assert murmur2(key) == JAVA_VECTORS[key] & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_the_hash_is_the_one_of_the_python_clients(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=2 * HOT_KEY_BYTES_MAX), st.integers(1, 10_000))
def test_a_key_has_one_partition_remembered_or_not(key: bytes, partition_count: int) -> None:
    expected = (aiokafka_murmur2(key) & 0x7FFFFFFF) % partition_count
    assert partition_for_key(key, partition_count) == expected
    assert partition_for_key(key, partition_count) == expected
