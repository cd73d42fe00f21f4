"""What bounds the goals that a run may miss, as profiles of both ends say."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.peers.goals import Result

NOTE = (
    "The profiles were taken apart from the run, on the machine of the page in the repository, at "
    "801cd9e or a few commits later. On another machine their figures differ."
)
NOT_KNOWN = "No profile says yet what bounds it."

_OBJECTS = (
    "An object for each record. In one client, one after the other, a record of 1 KiB takes "
    "0.59 µs as a value (`values()`), 0.74 as an object of `batches()`, and 1.05 with `async for`."
)
_CALLS = (
    "A produce and a fetch of one record are 245 function calls of the broker, nearly all of them "
    "once, and two calls of `send` that wake a process. They are out of the processor's caches "
    "when the next record comes: the same record takes the broker 0.32 ms of CPU at 1,500 "
    "records/s, 0.46 at 1,000 and 1.1 at 200, and a produce 0.08 with one behind the other."
)
_PROCESSORS = (
    "A record takes broker and clients 1.1 ms of CPU together, and 1.4 with an fsync. So at 1,000 "
    "records/s more than one of the two processors is in use, and a record often waits for one. "
    "And the machine stops both: a loop on each that only reads the clock was stopped for 1 to 9 "
    "ms, 20 times in 6 seconds."
)

BOUNDS: Mapping[str, str] = {
    "Produce 100 B, send": (
        "The client, on one core. Three quarters of its time are `send` itself: a third of that "
        "makes the object that can be awaited, a sixth keeps the bounds of batch and buffer. A "
        "tenth is `room`."
    ),
    "Consume 1 KiB, batches": _OBJECTS,
    "Consume 1 KiB, async for": _OBJECTS,
    "End to end at 1,000/s, p50, page cache": _CALLS,
    "End to end at 1,000/s, p50, fsync": (
        "The way to the thread that syncs and back. fdatasync itself takes 0.3 ms. In the event "
        "loop, where it would stop every connection for as long as the disk takes, p50 was 2.5 ms "
        "in place of 3.6, and the broker's CPU per record 0.55 ms in place of 0.68."
    ),
    "End to end at 1,000/s, p99, page cache": _PROCESSORS,
    "End to end at 1,000/s, p99, fsync": _PROCESSORS,
    "Broker CPU per GiB in, 1 KiB": (
        "The kernel has 59 %, Python 22, copies and cleared memory 13, the checksum 4. A loop that "
        "does nothing but receive 1 MiB and write it takes 0.36 to 0.49 s/GiB."
    ),
    "Broker CPU per GiB out, 1 KiB": (
        "The kernel: a loop that does nothing but `sendfile` takes 0.18 to 0.23 s/GiB."
    ),
    "Broker CPU per record at 1,000/s, no batching": _CALLS,
    "Broker CPU per record at 1,000/s, no batching, fsync": (
        f"{_CALLS} An fsync also wakes a thread of the broker, and that thread wakes the loop."
    ),
    "Spark, read 1 KiB to noop": (
        "Spark: a source in Python whose Arrow batches lie in memory reads 553 MB per CPU second "
        "of Spark, the connector 487 (`prebuilt Arrow`, group `spark` of `python -m benchmarks`)."
    ),
    "Spark, read 1 KiB to Parquet": (
        "Spark: a source in Python whose Arrow batches lie in memory reads 156 MB per CPU second "
        "of Spark, the connector 147 (`prebuilt Arrow`, group `spark` of `python -m benchmarks`)."
    ),
    "Start to first ack s": (
        "Imports, 0.7 s of it: 0.26 are dataclasses, 0.11 structlog, most of it its import of rich."
    ),
}
"""Of a goal, by its title."""


def bound_of(result: Result) -> str:
    """What bounds a goal that was missed."""
    return BOUNDS.get(result.goal.title, NOT_KNOWN)
