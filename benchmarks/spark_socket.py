"""Spark's format `received`: the least that a source can do whose rows come from a broker.

It receives the bytes of the topic under test, checks the checksum of each batch and copies the
values into Arrow, each once. All that makes a client and a decoder it leaves out: it knows where
the values lie, since all rows are alike, asks one broker, and gives up when anything is wrong. What
it costs more than `prebuilt` is therefore the price of the bytes themselves.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.spark_job import RECEIVED
from benchmarks.spark_rows import COLUMNS, TIMESTAMP_MS, Shape, ddl, noise, prebuilt, value_position
from benchmarks.wire import BrokerConnection, UnexpectedResponse, fetch_frame
from millrace._arrow.columns import arrow_schema
from millrace_protocol.codec import decode
from millrace_protocol.framing import HEADER_SIZE, LENGTH_SIZE
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.records import check_batches, encode_batch, offset_after, read_header
from millrace_spark.reading.range_reader import FETCH_BYTES

BUFFER_BYTES = FETCH_BYTES + (64 << 10)
"""Room for what is asked for, and what of the response is not records."""
WAKE_BYTES = 1 << 20
"""Received at once, as the client does it: each wake-up costs CPU time."""


class ReceivedSource(DataSource):
    """`spark.read.format("received")`; the options are the fields of `Shape`, and `servers`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return RECEIVED

    def schema(self) -> str:
        """The columns of the connector under test."""
        return ddl(COLUMNS)

    def reader(self, schema: StructType) -> ReceivedReader:
        """A reader of the topic of these rows."""
        host, _, port = self.options["servers"].rpartition(":")
        return ReceivedReader(
            Shape.of_options(self.options), tuple(schema.fieldNames()), (host, int(port))
        )


class ReceivedReader(DataSourceReader):
    """Receives what it yields."""

    def __init__(self, shape: Shape, columns: tuple[str, ...], address: tuple[str, int]) -> None:
        self._shape = shape
        self._columns = columns
        self._address = address

    def partitions(self) -> list[InputPartition]:
        """One task for each partition."""
        return [InputPartition(number) for number in range(self._shape.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, all of them."""
        shape = self._shape
        number = partition.value
        schema = arrow_schema(self._columns)
        # The other columns are as they are there, and of any batch of this many rows the same.
        constants = dict(zip(COLUMNS, prebuilt(shape, number, COLUMNS)[0].columns, strict=True))
        offset = 0
        with BrokerConnection(self._address) as connection:
            responses = _Responses(connection.sock, shape.topic, number)
            responses.ask(offset)
            while offset < shape.part_rows:
                records = responses.receive()
                first, offset = offset, offset_after(records, from_offset=offset)
                if offset < shape.part_rows:
                    responses.ask(offset)
                places = _places(shape, records)
                for start in range(0, len(places), shape.batch_rows):
                    some = places[start : start + shape.batch_rows]
                    count = len(some)
                    arrays = {name: array.slice(0, count) for name, array in constants.items()}
                    arrays["value"] = _copied(records, some, shape.value_bytes)
                    arrays["offset"] = pa.array(
                        np.arange(first + start, first + start + count, dtype=np.int64)
                    )
                    yield pa.RecordBatch.from_arrays(
                        [arrays[name] for name in self._columns], schema=schema
                    )


class _Responses:
    """The responses to fetches of one partition, one asked for while the one before is used."""

    def __init__(self, sock: socket.socket, topic: str, partition: int) -> None:
        self._sock = sock
        self._topic = topic
        self._partition = partition
        self._buffers = [memoryview(bytearray(BUFFER_BYTES)) for _ in range(2)]

    def ask(self, offset: int) -> None:
        """Asks for what follows an offset."""
        self._sock.sendall(fetch_frame(self._topic, offset, FETCH_BYTES, partition=self._partition))

    def receive(self) -> memoryview:
        """The batches of the next response, good until the one after the next is asked for."""
        self._buffers.reverse()
        buffer = self._buffers[0]
        self._fill(buffer[:HEADER_SIZE])
        size = LENGTH_SIZE + int.from_bytes(buffer[:LENGTH_SIZE], "big")
        self._fill(buffer[HEADER_SIZE:size])
        (result,) = decode(FetchResponse, buffer[HEADER_SIZE:size], 0).partitions
        if result.error_code or not len(result.records):
            raise UnexpectedResponse(f"error {result.error_code}, {len(result.records)} bytes")
        return memoryview(result.records)

    def _fill(self, room: memoryview) -> None:
        while room:
            wake_bytes = min(WAKE_BYTES, len(room))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)
            received = self._sock.recv_into(room)
            if not received:
                raise UnexpectedResponse("the server closed the connection")
            room = room[received:]


def _places(shape: Shape, records: memoryview) -> npt.NDArray[np.int64]:
    """Where the values of a response begin."""
    positions, fault = check_batches(records)
    if fault is not None:
        raise UnexpectedResponse(str(fault))
    sizes = np.diff([*positions, len(records)])
    if (sizes == sizes[0]).all():
        count = read_header(records).record_count
        return np.add.outer(np.array(positions), _places_in_batch(shape, count)).reshape(-1)
    return np.concatenate(
        [
            position + _places_in_batch(shape, read_header(records, position).record_count)
            for position in positions
        ]
    )


@cache
def _places_in_batch(shape: Shape, count: int) -> npt.NDArray[np.int64]:
    """Where the values of any batch of so many rows begin."""
    size = shape.value_bytes
    firsts = [value_position(number, size) for number in range(count)]
    some = [noise()[first : first + size] for first in firsts]
    batch = bytes(encode_batch(some, timestamps_ms=TIMESTAMP_MS))
    places: list[int] = []
    end = 0
    for value in some:
        places.append(batch.index(value, end))
        end = places[-1] + len(value)
    return np.array(places, np.int64)


def _copied(records: memoryview, places: npt.NDArray[np.int64], size: int) -> pa.BinaryArray:
    count = len(places)
    everywhere = np.ndarray(
        (len(records) - size + 1,), np.dtype((np.void, size)), records, strides=(1,)
    )
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(everywhere[places])]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0)
