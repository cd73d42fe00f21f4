"""A stream reader that the tests drive as Spark's driver does."""

from __future__ import annotations

import json
import pickle
from typing import Any

from millrace.sync import Producer
from millrace_server.testing import BrokerThread

Document = dict[str, Any]
Record = tuple[str, int, int]
"""`(topic, partition, offset)`"""


class Stream:
    """A reader in the hands of a driver that asks as Spark does; `documents` is its checkpoint."""

    def __init__(self, documents: list[Document], options: dict[str, str]) -> None:
        self.documents = documents
        self._options = options
        self.reader = self.make_reader()
        self.records: list[Record] = []

    def make_reader(self) -> Any:
        from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

        from millrace_spark.streaming.stream_reader import make_stream_reader

        types = {"topic": StringType(), "partition": IntegerType(), "offset": LongType()}
        schema = StructType([StructField(name, each) for name, each in types.items()])
        return make_stream_reader(self._options, schema)

    def stop_at_latest(self) -> Stream:
        self.reader.prepareForTriggerAvailableNow()
        return self

    def batch(self) -> list[Record] | None:
        """The records of the next micro-batch; None when there is nothing to make one of."""
        first = None
        if not self.documents:
            first = self.reader.initialOffset()
        start = self.documents[-1] if self.documents else first
        end = self.reader.latestOffset(self.stored(start), self.reader.getDefaultReadLimit())
        if self.documents and json.dumps(end) == json.dumps(start):
            return None
        if len(self.documents) > 1:
            self.reader.commit(self.stored(self.documents[-2]))
        self.documents.append(self.stored(end))
        records = self.read(start, self.documents[-1])
        self.records += records
        return records

    def repeated_batch(self) -> list[Record]:
        """The last micro-batch again, as after a crash before it was done."""
        return self.read(self.documents[-2], self.documents[-1])

    def read(self, start: Any, end: Any) -> list[Record]:
        """What the tasks of a micro-batch read, each by a reader that was pickled."""
        on_executor = pickle.loads(pickle.dumps(self.make_reader()))
        return [
            (row["topic"], row["partition"], row["offset"])
            for partition in self.reader.partitions(start, end)
            for rows in on_executor.read(pickle.loads(pickle.dumps(partition)))
            for row in rows.to_pylist()
        ]

    def to_the_end(self) -> list[list[Record]]:
        """All micro-batches until there is nothing to make one of."""
        return list(iter(self.batch, None))

    @staticmethod
    def stored(document: Any) -> Any:
        """As it comes out of a checkpoint."""
        return json.loads(json.dumps(document))


def produce(broker: BrokerThread, topic: str, **counts: int) -> None:
    """So many records into each partition, `p0=3, p1=5`, of 100 bytes, each a batch of its own."""
    with Producer(broker.servers) as producer:
        for name, count in counts.items():
            for _ in range(count):
                producer.send(topic, b"x" * 100, partition=int(name[1:]))


def records(topic: str, partition: int, start: int, end: int) -> list[Record]:
    return [(topic, partition, offset) for offset in range(start, end)]
