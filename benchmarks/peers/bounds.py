"""What bounds the goals that a run may miss, as profiles of both ends say."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.peers.goals import Result

NOT_KNOWN = "No profile says yet what bounds it."

_COPIES = (
    "A record of 1 KiB takes the client 0.9 µs as Arrow and 1.5 µs as an object (`batches()`): "
    "the copy out of the kernel, the checksum, and the copy into a column or a `bytes`."
)
_WAKE_UPS = (
    "Four wake-ups lie between producer and consumer. On this virtual machine a `send` that wakes "
    "a process takes 42 µs. The broker's part is 320 function calls for a produce and a fetch."
)
_CALLS = (
    "A produce and a fetch of one record pass 320 function calls, and two calls of `send` that "
    "wake a process, 42 µs each on this virtual machine. With fsync a thread is woken as well."
)

BOUNDS: Mapping[str, str] = {
    "Produce 100 B, send": (
        "The client, with 1.5 µs a record on one core: 0.5 in `send`, 0.2 in `room`, 0.1 in the "
        "encoder, and some 200 µs for each batch, whatever it holds."
    ),
    "Consume 1 KiB, Arrow": _COPIES,
    "Consume 1 KiB, batches": _COPIES,
    "End to end at 1,000/s, p50, page cache": _WAKE_UPS,
    "End to end at 1,000/s, p99, page cache": _WAKE_UPS,
    "Broker CPU per GiB in, 1 KiB": (
        "A request of 128 KiB takes the broker 270 µs, of which 120 are the kernel's: receiving "
        "it and writing it. The rest does not depend on its size. With batches of 1 MB, "
        "1 GiB takes 0.85 s in place of 2.1, and Kafka's broker 1.9 s."
    ),
    "Broker CPU per record at 1,000/s, no batching": _CALLS,
    "Broker CPU per record at 1,000/s, no batching, fsync": _CALLS,
    "Start to first ack s": (
        "Imports, 0.8 s of it: 0.26 are dataclasses, 0.12 typer's import of pydantic, 0.08 "
        "structlog's import of rich."
    ),
}
"""Of a goal, by its title."""


def bound_of(result: Result) -> str:
    """What bounds a goal that was missed."""
    return BOUNDS.get(result.goal.title, NOT_KNOWN)
