"""Imports whose tasks run in this process: all but Spark, and so a second sooner than with it.

    python -m tests.spark.import_here TOPIC SERVERS DIR GROUP PIECE_BYTES

imports again and again until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.import_run import ImportSettings
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.landing_plan import Wishes
from millrace_spark.pipeline.landing_task import Landed, LandingTask
from millrace_spark.pipeline.ledger import Ledger
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.ranges import OffsetRange


@dataclass
class InThisProcess:
    """Tasks that need no Spark."""

    directory: LandingDirectory
    log: TopicLog

    def __call__(self, ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, Landed]:
        """Lands one range after another."""
        assert ledger.landing is not None
        options = self.log.read_options(ledger.landing.spans)
        task = LandingTask(self.directory, ledger.landing.number, ledger.shape, options)
        return {index: task.land(index, wanted) for index, wanted in ranges.items()}


def run_here(settings: ImportSettings) -> int:
    """One import; returns how many records it landed."""
    directory = LandingDirectory(settings.to)
    log = TopicLog(
        settings.servers,
        max_partition_bytes=settings.max_partition_bytes,
        skip_lost=settings.skip_lost,
    )
    assert settings.group is not None
    fresh = Ledger("d1", settings.group, settings.shape)
    with directory.locked():
        tasks = InThisProcess(directory, log)
        importer = Importer.opened(directory, log, tasks, fresh=fresh, group=settings.group)
        importer.clear()
        landed = 0 if importer.ledger.landing is None else importer.land().records
        if importer.plan(settings.topics, Wishes(skip_lost=settings.skip_lost)) is not None:
            landed += importer.land().records
    return landed


if __name__ == "__main__":
    topic, servers, to, group, piece_bytes = sys.argv[1:]
    while True:
        run_here(ImportSettings((topic,), to, servers, group, max_partition_bytes=piece_bytes))
