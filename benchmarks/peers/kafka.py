"""Apache Kafka: one broker that is its own controller, with the heap of its start script.

Its jars are fetched once into a cache outside of the repository; see `benchmarks.apache_kafka`.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.apache_kafka import (
    VERSION,
    NoKafka,
    classpath,
    format_directory,
    free_port,
    write_properties,
)
from benchmarks.peers.contestant import FSYNC, PAGE_CACHE, Contestant, Unavailable, Way

ADMIN_TIMEOUT_S = 60
HEAP = ("-Xms1g", "-Xmx1g")
"""Those of kafka-server-start.sh, as is the collector in `JVM`."""
JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
# Files of deleted topics would lie on the disk for a minute, beside the next rounds. The delay of
# groups is the default, which `write_properties` sets to 0 for tests.
SETTINGS = {"log.segment.delete.delay.ms": 1_000, "group.initial.rebalance.delay.ms": 3_000}
_CONFIGS = {PAGE_CACHE: {}, FSYNC: {"flush.messages": "1"}}


class ApacheKafka(Contestant):
    """One broker. A durability is the setting `flush.messages` of a topic."""

    name = "Apache Kafka"
    durabilities: ClassVar[Mapping[str, str]] = {
        PAGE_CACHE: "the default: acked when written to the page cache",
        FSYNC: "flush.messages=1: acked after an fsync of its own for each append",
    }
    writers = (
        Way("Kafka, confluent produce", "confluent", "produce", main=True),
        Way("Kafka, confluent produce, fsync", "confluent", "produce", FSYNC),
        Way("Kafka, aiokafka send", "aio", "send", share=5),
        Way("Kafka, kafka-producer-perf-test", "java", "perf", checks_values=False),
    )
    readers = (
        Way("Kafka, confluent consume", "confluent", "consume", main=True),
        Way("Kafka, confluent poll", "confluent", "poll"),
        Way("Kafka, aiokafka getmany", "aio", "getmany", share=5),
        Way("Kafka, aiokafka getone", "aio", "getone", share=5),
        Way("Kafka, kafka-consumer-perf-test", "java", "perf", checks_values=False),
    )
    verifier = ("confluent", "poll")
    paced = (
        Way("Kafka, confluent", "confluent", "poll", main=True),
        Way("Kafka, confluent, fsync", "confluent", "poll", FSYNC),
        Way("Kafka, aiokafka", "aio", "getone"),
    )
    compresses = True
    has_acks = True
    has_groups = True

    def version(self) -> str:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise Unavailable("confluent-kafka is not installed: pip install 'millrace[bench]'")
        if shutil.which("java") is None:
            raise Unavailable("no java on the PATH: Apache Kafka needs Java 17 or newer")
        try:
            classpath()
            classpath("kafka-tools")
        except NoKafka as error:
            raise Unavailable(str(error)) from error
        return VERSION

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_properties(self._properties, self.data, self.port, free_port(), SETTINGS)
        try:
            format_directory(classpath(), self._properties)
        except NoKafka as error:
            raise Unavailable(str(error)) from error

    def command(self) -> Sequence[str]:
        return ["java", *HEAP, *JVM, "-cp", classpath(), "kafka.Kafka", str(self._properties)]

    def create_topic(self, topic: str, *, partitions: int = 1, durability: str) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=1, config=_CONFIGS[durability]
        )
        admin = AdminClient({"bootstrap.servers": self.servers})
        (created,) = admin.create_topics([new]).values()
        created.result(ADMIN_TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(ADMIN_TIMEOUT_S)

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"
