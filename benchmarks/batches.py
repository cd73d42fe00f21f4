"""Record batches of a wanted size, made once, and the topics that are filled with them."""

from __future__ import annotations

from benchmarks.wire import BrokerConnection, UnexpectedResponse, produce_frame, pump
from millrace_protocol.api import ApiKey
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.records.encode import encode_batch

VALUE_BYTES_MAX = 1024
TIMESTAMP_MS = 1_700_000_000_000
LATEST = -1
FILL_IN_FLIGHT = 8


def batch_of(size: int) -> tuple[bytes, int]:
    """A sealed batch of exactly `size` bytes, and how many records it holds.

    Values of 1 KiB, or one smaller value; the last one fills up.
    """
    count = max(size // (VALUE_BYTES_MAX + 16), 1)
    last = 1
    # Lengths are varints, so the size does not grow evenly: close in on it.
    for _ in range(8):
        values = [b"v" * VALUE_BYTES_MAX] * (count - 1) + [b"v" * last]
        batch = bytes(encode_batch(values, timestamps_ms=TIMESTAMP_MS))
        if len(batch) == size:
            return batch, count
        last += size - len(batch)
        if last < 0:
            break
    raise ValueError(f"no batch of {count} records has exactly {size} bytes")


def fill(
    connection: BrokerConnection, topic: str, batch: bytes, *, records: int, count: int
) -> None:
    """Appends a batch `count` times to partition 0 of an empty topic, and checks its end."""
    request = produce_frame(topic, batch)
    response = connection.exchange(request)
    connection.decode(ApiKey.PRODUCE, response)
    pump(
        connection.sock,
        [request],
        count=count - 1,
        in_flight=FILL_IN_FLIGHT,
        response_size=len(response),
    )
    check_end(connection, topic, count * records)


def check_end(connection: BrokerConnection, topic: str, end_offset: int) -> None:
    """Raises `UnexpectedResponse` unless partition 0 ends at `end_offset`, exclusive."""
    question = ListOffsetsPartition(topic=topic, partition=0, timestamp_ms=LATEST)
    response = connection.call(ApiKey.LIST_OFFSETS, ListOffsetsRequest(partitions=(question,)))
    (found,) = response.partitions
    if found.offset != end_offset:
        raise UnexpectedResponse(
            f"{topic} ends at offset {found.offset} where {end_offset} is due: "
            f"{found.error_message or 'batches were refused'}"
        )
