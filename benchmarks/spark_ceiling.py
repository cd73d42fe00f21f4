"""Spark's format `prebuilt`: what a source or a sink in Python costs when it does nothing.

Reading yields Arrow batches that lie in memory; writing takes the batches of a task and drops
them. Both go the way that every Python data source of Spark goes, in workers that are as Spark made
them: what `millrace_spark.worker_memory` saves is the one thing that the connector has over them.
Workers import this module, so the root of this repository is on their path.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.spark_job import PREBUILT
from benchmarks.spark_rows import COLUMNS, Shape, ddl, prebuilt


class PrebuiltSource(DataSource):
    """`spark.read.format("prebuilt")`; the options are the fields of `Shape`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return PREBUILT

    def schema(self) -> str:
        """The columns of the connector under test."""
        return ddl(COLUMNS)

    def reader(self, schema: StructType) -> PrebuiltReader:
        """A reader of these rows."""
        return PrebuiltReader(Shape.of_options(self.options), tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        """A writer of rows of any shape."""
        return DroppingWriter()


class PrebuiltReader(DataSourceReader):
    """Yields what is there."""

    def __init__(self, shape: Shape, columns: tuple[str, ...]) -> None:
        self._shape = shape
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """One task for each partition."""
        return [InputPartition(number) for number in range(self._shape.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one partition; the first task of a worker process makes them."""
        # Spark shares workers by their environment, which differs by how a source was found.
        if gc.get_freeze_count():
            raise RuntimeError("this worker has served the connector, and is no measure for it")
        yield from prebuilt(self._shape, partition.value, self._columns)


@dataclass(frozen=True)
class Dropped(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and counts them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Dropped:
        """Goes through all batches of a task."""
        return Dropped(sum(batch.num_rows for batch in iterator))
