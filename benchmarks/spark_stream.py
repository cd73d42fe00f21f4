"""Micro-batches of one record: how long one takes, and when a user's function has the record."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import ProcessFailed
from millrace.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

WARM_UP_BATCHES = 5
RECORD_TIMEOUT_S = 60.0
POLL_S = 0.01


def micro_batches(
    spark: SparkSession, servers: str, topic: str, count: int, directory: Path
) -> dict[str, list[float]]:
    """Seconds of `count` micro-batches, to `noop` and from the ack of a record to its rows.

    `topic` is empty, and has the records of both when this returns.
    """
    reader = spark.readStream.format("millrace").options(
        **{"millrace.servers": servers, "subscribe": topic}
    )
    with Producer(servers) as producer:
        producer.send_many(topic, [b"v"] * (count + WARM_UP_BATCHES))
        batch_s = _batches(reader, directory / "batches")
        record_s = _records(reader, producer, topic, count, directory / "records")
    return {"batch": batch_s[-count:], "record": record_s}


def _batches(reader: DataStreamReader, checkpoint: Path) -> list[float]:
    """The time of each trigger over what is there, a record each, one right after the other."""
    rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        progress.durationMs["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress.numInputRows
    ]


def _records(
    reader: DataStreamReader, producer: Producer, topic: str, count: int, checkpoint: Path
) -> list[float]:
    """From each send to the moment when a function of the user has the rows on the driver."""
    seen: queue.SimpleQueue[tuple[bytes, float]] = queue.SimpleQueue()

    def see(frame: DataFrame, _: int) -> None:
        for row in frame.select("value").collect():
            seen.put((bytes(row.value), time.perf_counter()))

    rows = reader.option("startingOffsets", "latest").load()
    writer = rows.writeStream.foreachBatch(see).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        # The stream begins where the topic ends when it is first asked.
        while query.isActive and not query.recentProgress:
            time.sleep(POLL_S)
        taken = []
        for number in range(WARM_UP_BATCHES + count):
            value = b"%d" % number
            sent = time.perf_counter()
            producer.send(topic, value)
            found, at = seen.get(timeout=RECORD_TIMEOUT_S)
            if found != value:
                raise ProcessFailed(f"the stream has {found!r} where {value!r} was due")
            taken.append(at - sent)
    finally:
        query.stop()
    return taken[WARM_UP_BATCHES:]
