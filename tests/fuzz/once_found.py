"""Inputs that decoders once failed on, by target; they are tried before all others."""

from __future__ import annotations

from millrace_protocol.records import encode_batch

_NESTED = b"[" * 2_000


def _batch_far_away() -> bytes:
    """Two batches, the second with a base offset that no segment of the first can hold: base
    offsets are not under the CRC, and a bit of one may change on the disk."""
    first = bytes(encode_batch([b"v" * 500], timestamps_ms=1_000))
    return first + (2**31).to_bytes(8, "big") + first[8:]


ONCE_FOUND: tuple[tuple[str, bytes], ...] = (
    ("found log", _batch_far_away()),
    ("metadata record", _NESTED),
    ("configuration file", b"data = " + _NESTED),
    ("configuration file", b"partitions = [1]"),
    ("configuration file", b"partitions = 1979-05-27"),
    ("configuration file", b"data = 0x" + b"F" * 4_000),
    ("configuration file", b"node_id = " + b"9" * 5_000),
    ("request line", b"fetch partitions=" + _NESTED),
    ("request line", b"fetch@" + b"9" * 5_000),
    (
        "request line",
        b'produce partitions={"topic": "c", "records": [{"value": "a", "timestamp_ms": 1e300}]}',
    ),
    ("records in files", _NESTED),
    ("records in files", b'{"k": "\\ud800"}'),
)
