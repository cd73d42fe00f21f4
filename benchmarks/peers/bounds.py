"""What bounds the goals that a run may miss, as profiles of both ends say."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.peers.goals import Result

NOTE = (
    "The profiles were taken apart from the run, on the machine of the page in the repository, at "
    "083dd90. On another machine their figures differ."
)
NOT_KNOWN = "No profile says yet what bounds it."

_COPIES = (
    "A record of 1 KiB takes the client 0.9 µs as Arrow and 1.5 µs as an object (`batches()`): "
    "the copy out of the kernel, the checksum, and the copy into a column or a `bytes`."
)
_CALLS = (
    "A produce and a fetch of one record pass 320 function calls of the broker, and two calls of "
    "`send` that wake a process, 42 µs each."
)

BOUNDS: Mapping[str, str] = {
    "Produce 100 B, send": (
        "The client, with 1.5 µs a record on one core: 0.5 in `send`, 0.2 in `room`, 0.1 in the "
        "encoder, and some 200 µs for each batch, whatever it holds. The rest is not explained."
    ),
    "Consume 1 KiB, Arrow": _COPIES,
    "Consume 1 KiB, batches": _COPIES,
    "End to end at 1,000/s, p50, page cache": _CALLS,
    "Broker CPU per GiB in, 1 KiB": (
        "A request of 128 KiB takes the broker 260 µs. The kernel takes some 120 of them, to "
        "receive the request and to write the batch. Most of the rest does not depend on its size."
    ),
    "Broker CPU per record at 1,000/s, no batching": _CALLS,
    "Broker CPU per record at 1,000/s, no batching, fsync": (
        f"{_CALLS} An fsync also wakes a thread of the broker, and that thread wakes the loop."
    ),
    "Start to first ack s": (
        "Imports, 0.8 s of it: 0.26 are dataclasses, 0.12 typer's import of pydantic, 0.08 "
        "structlog's import of rich."
    ),
}
"""Of a goal, by its title."""


def bound_of(result: Result) -> str:
    """What bounds a goal that was missed."""
    return BOUNDS.get(result.goal.title, NOT_KNOWN)
