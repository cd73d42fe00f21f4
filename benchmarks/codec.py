"""What encoding and decoding a record costs, beside aiokafka's compiled record code.

CPU time of this process, medians over repeated runs, in ns per record. One process, one thread,
no broker: this is the part of a client that no network can hide. Run as
`python -m benchmarks.codec`; `measure()` returns the same figures for a results file.

Both sides do the same work: to encode, lists of values become a sealed batch; to decode, the CRC
is checked and offset, timestamp, key, value and headers of every record become Python objects.
Values of one size are read as a table by our Python code and one by one by aiokafka, so there is a
shape with values of many sizes too. The compiled codec is measured where `millrace-native` is
installed.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from rich.console import Console
from rich.table import Table

from millrace_protocol.records import (
    Codec,
    decode_fetch,
    encode_batch,
    murmur2,
    native,
    partition_for_key,
)
from millrace_protocol.records.arrow import decode_arrow
from millrace_protocol.records.arrow_encode import encode_arrow

PYTHON, COMPILED, AIOKAFKA = "millrace", "millrace, compiled", "aiokafka (C)"
RUNS = 60
BATCH_BYTES = 64 * 1024
VALUE = b"v" * 100
VALUE_SIZES = range(80, 121)
"""Sizes of the values in the shape where they differ; 100 bytes on average."""
BATCH_RECORDS = BATCH_BYTES // 109
FETCH_BATCHES = 64
FETCH_BATCH_BYTES = 16 * 1024
NOW_MS = 1_700_000_000_000

Columns = dict[str, Any]
Figures = dict[str, dict[str, float]]

PLAIN: Columns = {"timestamps_ms": NOW_MS}
TIMES: Columns = {"timestamps_ms": [NOW_MS + index // 50 for index in range(BATCH_RECORDS)]}
KEYS: Columns = {"keys": [b"key-%05d" % index for index in range(BATCH_RECORDS)]}
HEADERS: Columns = {"headers": [(("trace", b"0123456789abcdef"),)] * BATCH_RECORDS}
SHAPES: dict[str, Columns] = {
    "values": PLAIN,
    "values, times": TIMES,
    "keys, times": TIMES | KEYS,
    "keys, times, headers": TIMES | KEYS | HEADERS,
    "values, lz4": PLAIN | {"codec": Codec.LZ4},
    "values, zstd": PLAIN | {"codec": Codec.ZSTD},
}


def cpu_ns_per_record(work: Callable[[], object], record_count: int) -> float:
    """Return the median CPU time of `work`, divided by its records."""
    work()
    samples = []
    for _ in range(RUNS):
        start = time.process_time_ns()
        work()
        samples.append(time.process_time_ns() - start)
    return statistics.median(samples) / record_count


def with_both_codecs(work: Callable[[], object], record_count: int) -> dict[str, float]:
    """`cpu_ns_per_record` of the Python code, and of the compiled code where there is any."""
    compiled, native.compiled = native.compiled, None
    try:
        figures = {PYTHON: cpu_ns_per_record(work, record_count)}
    finally:
        native.compiled = compiled
    if compiled is not None:
        figures[COMPILED] = cpu_ns_per_record(work, record_count)
    return figures


def encode_with_aiokafka(values: Sequence[bytes], columns: Columns) -> bytes:
    """Build the same batch through aiokafka's builder, a call per record as it wants it."""
    count = len(values)
    times = columns["timestamps_ms"]
    times = [times] * count if isinstance(times, int) else times
    keys = columns.get("keys") or [None] * count
    headers = list(map(list, columns.get("headers") or [()] * count))
    codec = int(columns.get("codec", Codec.NONE))
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for index in range(count):
        builder.append(index, times[index], keys[index], values[index], headers[index])
    return bytes(builder.build())


def decode_with_aiokafka(batch: bytes) -> None:
    """Check a batch and touch every field of its records."""
    parsed = DefaultRecordBatch(bytearray(batch))
    if not parsed.validate_crc():
        raise ValueError("aiokafka refuses the batch")
    for record in parsed:
        _ = (record.offset, record.timestamp, record.key, record.value, record.headers)


def decode_to_tuples(fetch: bytes) -> None:
    """Decode chunk by chunk and keep none, as a consumer's caller does."""
    for _ in decode_fetch(fetch):
        pass


def measure() -> Figures:
    """Measure everything; return ns per record as `{work: {contestant: figure}}`."""
    figures: Figures = {}
    sizes = random.Random(1).choices(VALUE_SIZES, k=BATCH_RECORDS)
    contents = dict.fromkeys(SHAPES, [VALUE] * BATCH_RECORDS)
    contents["values of many sizes"] = [b"v" * size for size in sizes]
    contents["values of 1 KiB"] = [b"v" * 1024] * (BATCH_BYTES // 1033)
    for shape, values in contents.items():
        columns = SHAPES.get(shape, PLAIN)
        batch = bytes(encode_batch(values, **columns))
        count = len(values)
        figures[f"encode {shape}"] = with_both_codecs(
            partial(encode_batch, values, **columns), count
        ) | {AIOKAFKA: cpu_ns_per_record(partial(encode_with_aiokafka, values, columns), count)}
        figures[f"decode {shape}"] = with_both_codecs(partial(decode_to_tuples, batch), count) | {
            AIOKAFKA: cpu_ns_per_record(partial(decode_with_aiokafka, batch), count)
        }
    figures |= measure_arrow() | measure_keys()
    return figures


def measure_arrow() -> Figures:
    """Measure columns: a batch from Arrow, and a fetch of 64 batches of 16 KiB to Arrow."""
    column = pa.array([VALUE] * BATCH_RECORDS, pa.binary())
    figures = {
        "encode values from Arrow": {
            PYTHON: cpu_ns_per_record(
                lambda: encode_arrow(column, timestamp_ms=NOW_MS), BATCH_RECORDS
            )
        }
    }
    for title, value in (("", VALUE), (", values of 1 KiB", b"v" * 1024)):
        in_batch = FETCH_BATCH_BYTES // (len(value) + 9)
        fetch = b"".join(
            encode_batch(
                [value] * in_batch, timestamps_ms=NOW_MS + index, base_offset=index * in_batch
            )
            for index in range(FETCH_BATCHES)
        )
        for form, decode in (("Arrow", decode_arrow), ("tuples", decode_to_tuples)):
            figures[f"decode 64 x 16 KiB to {form}{title}"] = with_both_codecs(
                partial(decode, fetch), FETCH_BATCHES * in_batch
            )
    return figures


def measure_keys() -> Figures:
    """Measure the choice of a partition for keys of nine bytes."""
    keys = KEYS["keys"]
    return {
        "murmur2": {PYTHON: cpu_ns_per_record(lambda: [murmur2(key) for key in keys], len(keys))},
        "partition of a hot key": {
            PYTHON: cpu_ns_per_record(
                lambda: [partition_for_key(key, 12) for key in keys], len(keys)
            )
        },
    }


def main() -> None:
    """Print the figures as a table."""
    table = Table("CPU, ns per record", title=f"{BATCH_RECORDS} values of {len(VALUE)} bytes")
    contestants = (PYTHON, COMPILED, AIOKAFKA)
    for name in contestants:
        table.add_column(name, justify="right")
    for work, figures in measure().items():
        cells = [f"{figures[name]:.0f}" if name in figures else "" for name in contestants]
        table.add_row(work, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
