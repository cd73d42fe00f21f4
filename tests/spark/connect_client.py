"""A client of Spark Connect in a process of its own, for a classic session cannot live beside it.

Owns what it does through the connector: a batch read, a batch write, a stream, and a mistake. Says
what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import warnings


def main(address: str, servers: str, folder: str) -> None:
    """Does it all with the server at `address`."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    records = spark.read.format("millrace").option("millrace.servers", servers)
    rows = records.option("subscribe", "in").load()
    found = {"session": type(spark).__module__, "read": rows.count()}
    late = rows.where("partition = 1 and offset >= 40").selectExpr("key", "value")
    writer = late.write.format("millrace").option("millrace.servers", servers)
    writer.option("topic", "written").mode("append").save()
    query = (
        spark.readStream.format("millrace")
        .option("millrace.servers", servers)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("millrace")
        .option("millrace.servers", servers)
        .option("topic", "streamed")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    try:
        records.option("subscribe", "nowhere").load().count()
    except PySparkException as error:
        found["refused"] = str(error)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
