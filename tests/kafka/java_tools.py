"""Kafka's Java client, its tools, Kafka Streams and Spark's Kafka source, against millrace.

Each check is a function of the broker's address. The jars are fetched once, see
`benchmarks.apache_kafka`; those of Spark's source by Spark itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from benchmarks.apache_kafka import apache_kafka, cache_directory, classpath
from millrace import sync
from millrace_server.testing import BrokerThread
from tests.kafka import java_security
from tests.kafka.moved_segments import MOVED, SEGMENT, records_in, take_over

TOOL_TIMEOUT_S = 120
WAIT_S = 60
SPARK_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest that was published; Spark 4.3 loads it."""
TOOLS = "org.apache.kafka.tools."
Check = Callable[[str], None]


def java(main: str, *arguments: str, stdin: str = "", artifact: str = "kafka_2.13") -> str:
    """What a class of Kafka prints. Raises `AssertionError` when it ends with an error."""
    jars = f"{classpath(artifact)}:{classpath('kafka-tools')}"
    command = ["java", "-cp", jars, main, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, (main, done.stdout[-300:], done.stderr[-600:])
    return done.stdout


def topics(servers: str, *arguments: str) -> str:
    return java(TOOLS + "TopicCommand", "--bootstrap-server", servers, *arguments)


def topic_command(servers: str) -> None:
    """kafka-topics: create, widen, list, describe, delete."""
    topics(servers, "--create", "--topic", "java", "--partitions", "2")
    topics(servers, "--alter", "--topic", "java", "--partitions", "3")
    assert "java" in topics(servers, "--list").split()
    assert "PartitionCount: 3" in topics(servers, "--describe", "--topic", "java")
    topics(servers, "--delete", "--topic", "java")
    assert "java" not in topics(servers, "--list").split()


def console_tools(servers: str) -> None:
    """kafka-console-producer and -consumer with keys; the group by kafka-consumer-groups."""
    topics(servers, "--create", "--topic", "console", "--partitions", "1")
    lines = "".join(f"key-{n}:value-{n}\n" for n in range(100))
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    where = ("--bootstrap-server", servers, "--topic", "console")
    java(TOOLS + "ConsoleProducer", *where, *keys, "--compression-codec", "zstd", stdin=lines)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    group = ("--group", "java-group", "--from-beginning", "--max-messages", "100")
    read = java(TOOLS + "consumer.ConsoleConsumer", *where, *shown, *group)
    assert read == lines
    described = java(
        TOOLS + "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", "java-group"),
    )
    row = next(line.split() for line in described.splitlines() if "console" in line)
    assert row[3:6] == ["100", "100", "0"], row
    with sync.Consumer(servers, "console") as consumer:
        values = [record.value for record in consumer.getmany(max_records=100)]
    assert values == [b"value-%d" % n for n in range(len(values))] and values


def settings_and_offsets(servers: str) -> None:
    """kafka-configs, kafka-get-offsets, kafka-delete-records."""
    topics(servers, "--create", "--topic", "set", "--partitions", "1")
    where = ("--bootstrap-server", servers)
    entity = ("--entity-type", "topics", "--entity-name", "set")
    java(
        "kafka.admin.ConfigCommand", *where, *entity, "--alter", "--add-config", "retention.ms=5000"
    )
    described = java("kafka.admin.ConfigCommand", *where, *entity, "--describe")
    assert "retention.ms=5000" in described
    with sync.Producer(servers) as producer:
        producer.send_many("set", [b"v"] * 10)
    offsets = java(TOOLS + "GetOffsetShell", *where, "--topic", "set")
    assert offsets.strip() == "set:0:10"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        wanted = {"partitions": [{"topic": "set", "partition": 0, "offset": 4}], "version": 1}
        json.dump(wanted, file)
        file.flush()
        deleted = java(TOOLS + "DeleteRecordsCommand", *where, "--offset-json-file", file.name)
    assert "low_watermark: 4" in deleted


def performance_tools(servers: str) -> None:
    """kafka-producer-perf-test and kafka-consumer-perf-test."""
    topics(servers, "--create", "--topic", "perf", "--partitions", "3")
    where = ("--bootstrap-server", servers)
    sent = java(
        TOOLS + "ProducerPerformance",
        *("--topic", "perf", "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1", *where),
    )
    assert "20000 records sent" in sent
    java(TOOLS + "ConsumerPerformance", *where, "--topic", "perf", "--num-records", "20000")


def streams_word_count(servers: str) -> None:
    """The word count of Kafka's own examples, without transactions."""
    for name in ("streams-plaintext-input", "streams-wordcount-output"):
        topics(servers, "--create", "--topic", name, "--partitions", "1")
    with sync.Producer(servers) as producer:
        producer.send_many("streams-plaintext-input", [b"one two two", b"three three three"])
    jars = f"{classpath('kafka-streams-examples')}:{classpath('kafka-streams')}"
    main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(f"bootstrap.servers={servers}\n")
        file.flush()
        process = subprocess.Popen(
            ["java", "-cp", jars, main, file.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            counts = _counts(servers)
        finally:
            process.kill()
            process.wait()
    assert counts == {b"one": 1, b"two": 2, b"three": 3}, counts


def _counts(servers: str) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    deadline = time.monotonic() + WAIT_S
    with sync.Consumer(servers, "streams-wordcount-output") as consumer:
        while len(found) < 3 and time.monotonic() < deadline:
            for record in consumer.getmany(timeout_ms=500):
                assert record.key is not None and record.value is not None
                found[record.key] = int.from_bytes(record.value, "big")
    return found


def spark_source_and_sink(servers: str) -> None:
    """Spark's own Kafka source and sink: a batch, a stream, and what they write."""
    with sync.Admin(servers) as admin:
        for name in ("spark-in", "spark-out", "spark-streamed"):
            admin.create_topic(name, partitions=2)
    with sync.Producer(servers) as producer:
        producer.send_many("spark-in", [b"%d" % n for n in range(1_000)])
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "job.py"
        script.write_text(_SPARK_JOB)
        command = [sys.executable, str(script), servers, SPARK_SOURCE, directory]
        environment = {**os.environ, "MILLRACE_IVY": str(cache_directory() / "spark-ivy")}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=environment, check=False
        )
    assert done.returncode == 0, done.stderr[-1_500:]
    for name in ("spark-out", "spark-streamed"):
        with sync.Consumer(servers, name) as consumer:
            values: set[bytes] = set()
            while len(values) < 1_000:
                values |= {r.value for r in consumer.getmany(timeout_ms=5_000) if r.value}
        assert values == {b"%d" % n for n in range(1_000)}


_SPARK_JOB = """
import os, sys
from pyspark.sql import SparkSession
servers, package, directory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", package)
    .config("spark.jars.ivy", os.environ["MILLRACE_IVY"])
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
options = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}
rows = spark.read.format("kafka").options(**options, subscribe="spark-in").load()
assert rows.count() == 1000
rows.select("value").write.format("kafka").options(**options, topic="spark-out").save()
stream = spark.readStream.format("kafka").options(**options, subscribe="spark-in").load()
query = (
    stream.select("value").writeStream.format("kafka")
    .options(**options, topic="spark-streamed", checkpointLocation=directory + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""


# Segment files


def kafka_segment(data: Path) -> Path:
    """A segment that Apache Kafka has written: batches with and without codec, keys, nulls."""
    with apache_kafka(data) as (servers, _):
        topics(servers, "--create", "--topic", "moved", "--partitions", "1")
        for codec in ("none", "zstd", "gzip"):
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 500}
            )
            for key, value in MOVED:
                producer.produce("moved", value, key=key, headers=[("codec", codec)])
            assert producer.flush(WAIT_S) == 0
    return data / "moved-0" / SEGMENT


def segments_of_kafka(servers: str) -> None:
    """A broker reads a segment that Apache Kafka has written."""
    with tempfile.TemporaryDirectory() as directory:
        segment = kafka_segment(Path(directory) / "kafka")
        data = Path(directory) / "millrace"
        take_over(segment, data)
        assert records_in(data) == MOVED * 3


def segments_for_kafka(servers: str) -> None:
    """Apache Kafka reads a segment that a broker has written."""
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory) / "millrace", Path(directory) / "kafka"
        with BrokerThread(data=ours) as broker:
            with sync.Admin(broker.servers) as admin:
                admin.create_topic("moved")
            for codec in ("none", "zstd", "lz4"):
                with sync.Producer(broker.servers, compression=codec) as producer:
                    for key, value in MOVED:
                        producer.send("moved", value, key=key)
        kafka_segment(theirs)
        partition = theirs / "moved-0"
        for file in partition.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        shutil.copy(ours / "moved-0" / SEGMENT, partition / SEGMENT)
        # What it knew of the old segment.
        for file in theirs.glob("*checkpoint*"):
            file.unlink()
        (theirs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        with apache_kafka(theirs) as (address, _):
            consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "g"})
            consumer.assign([confluent_kafka.TopicPartition("moved", 0, 0)])
            found = consumer.consume(3 * len(MOVED), WAIT_S)
            consumer.close()
        assert [(each.key(), each.value()) for each in found] == MOVED * 3


def scram_over_tls(servers: str) -> None:
    """The Java client as a user, over TLS."""
    java_security.scram_over_tls(java)


def client_certificates(servers: str) -> None:
    """The Java client with a certificate."""
    java_security.certificates(java)


CHECKS: tuple[Check, ...] = (
    topic_command,
    console_tools,
    settings_and_offsets,
    performance_tools,
    streams_word_count,
    spark_source_and_sink,
    segments_of_kafka,
    segments_for_kafka,
    scram_over_tls,
    client_certificates,
)


def run(servers: str, only: str = "") -> int:
    """Runs the checks; how many failed."""
    failed = 0
    for check in CHECKS:
        if only in check.__name__:
            try:
                check(servers)
                print(f"ok      {check.__name__}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {check.__name__}: {error}", flush=True)
    return failed
