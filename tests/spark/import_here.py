"""Imports whose tasks run in this process, without Spark: a second faster.

    python -m tests.spark.import_here TOPIC SERVERS DIR GROUP PIECE_BYTES

imports again and again until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.import_plan import ImportPolicy
from millrace_spark.pipeline.import_run import ImportSettings
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.ledger import Ledger
from millrace_spark.pipeline.range_task import RangeResult, RangeTask
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.reading.ranges import OffsetRange


@dataclass
class InThisProcess:
    """Tasks that need no Spark."""

    directory: ImportDirectory
    log: TopicLog

    def __call__(self, ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, RangeResult]:
        """Lands one range after another."""
        assert ledger.batch is not None
        options = self.log.read_options(ledger.batch.spans)
        task = RangeTask(self.directory, ledger.batch.number, ledger.batch_layout, options)
        return {index: task.write(index, wanted) for index, wanted in ranges.items()}


def run_here(settings: ImportSettings) -> int:
    """One import; returns how many records it landed."""
    directory = ImportDirectory(settings.to)
    log = TopicLog(
        settings.servers,
        max_partition_bytes=settings.max_partition_bytes,
        skip_lost=settings.skip_lost,
    )
    assert settings.group is not None
    fresh = Ledger("d1", settings.group, settings.layout)
    with directory.locked():
        tasks = InThisProcess(directory, log)
        importer = Importer.open(directory, log, tasks, fresh=fresh, group=settings.group)
        importer.clean_up()
        landed = 0 if importer.ledger.batch is None else importer.write_batch().records
        if (
            importer.begin_batch(settings.topics, ImportPolicy(skip_lost=settings.skip_lost))
            is not None
        ):
            landed += importer.write_batch().records
    return landed


if __name__ == "__main__":
    topic, servers, to, group, piece_bytes = sys.argv[1:]
    while True:
        run_here(ImportSettings((topic,), to, servers, group, max_partition_bytes=piece_bytes))
