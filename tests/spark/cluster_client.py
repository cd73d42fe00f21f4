"""A driver of a standalone cluster, in a process of its own: the tests have a session on this
machine, and a process has one.

    python -m tests.spark.cluster_client MASTER SERVERS DIRECTORY COMMAND...

Reads the topic `in` as a batch, aggregates it, and streams it into the topic `streamed`. Prints the
results as one line of JSON. Then runs `millrace COMMAND...` with the same session, and ends as it.
"""

from __future__ import annotations

import itertools
import json
import sys

from millrace_cli.main import app
from millrace_spark.pipeline.aggregate_run import AggregateSettings, aggregate
from millrace_spark.pipeline.spark_start import start_spark


def main(master: str, servers: str, directory: str, *command: str) -> None:
    """Does it all on the executors of `master`; the settings of Spark are those of the command."""
    conf = [value for name, value in itertools.pairwise(command) if name == "--conf"]
    spark = start_spark("cluster client", master=master, conf=tuple(conf))
    records = spark.read.format("millrace").option("millrace.servers", servers)
    rows = records.option("subscribe", "in").option("minPartitions", "4").load()
    read = [(row.partition, row.offset, row.value.decode()) for row in rows.collect()]
    by_partition = aggregate(
        lambda: spark, AggregateSettings(("in",), servers=servers, by=("partition",))
    )
    query = (
        spark.readStream.format("millrace")
        .option("millrace.servers", servers)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .load()
        .select("key", "value")
        .writeStream.format("millrace")
        .option("millrace.servers", servers)
        .option("topic", "streamed")
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"read": read, "aggregate": by_partition.rows}), flush=True)
    app(command)


if __name__ == "__main__":
    main(*sys.argv[1:])
