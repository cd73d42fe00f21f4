"""A consumer group whose offsets show how far a stream is, for those who watch lags.

Owns the commits. Spark's checkpoint is the truth about a stream; what is written here is never
read back, and failing to write it is a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from millrace.errors import GroupNotFound, MillraceError
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.errors import OptionError
from millrace_spark.options import ReadOptions
from millrace_spark.patience import client_options, started

COMMIT_TIMEOUT_MS = 2_000
"""Of one commit; a stream waits for it between two micro-batches."""
PAUSE_MS = 30_000
"""After a commit that failed, none is tried for so long."""

log = logging.getLogger("millrace_spark")


class GroupProgress:
    """Commits for one group, on a connection of its own."""

    def __init__(
        self, group: str, options: ReadOptions, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._group = group
        self._options = options
        self._monotonic = monotonic
        self._admin: Admin | None = None
        self._committed: Mapping[TopicPartition, int] = {}
        self._not_before = 0.0

    def check(self) -> None:
        """Raises `OptionError` for a group that has members, which would fight with the stream.

        Connects, and raises `ConnectionFailed` where it cannot within the deadline.
        """
        settings = client_options(self._options)
        admin = started(
            lambda: Admin(self._options.servers, **settings), deadline_ms=self._options.deadline_ms
        )
        with closing(admin):
            try:
                found = admin.describe_group(self._group)
            except GroupNotFound:
                return
        if found.members:
            raise OptionError(
                "commitGroup",
                f"{self._group} has members ({len(found.members)}) that read for themselves; "
                "name a group that only this stream uses",
            )

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes the offsets that differ from those written last; logs why it cannot."""
        changed = {
            where: offset
            for where, offset in offsets.items()
            if self._committed.get(where) != offset
        }
        if not changed or self._monotonic() < self._not_before:
            return
        try:
            outcomes = self._connected().alter_group_offsets(self._group, changed)
            failed = [outcome.error for outcome in outcomes.values() if outcome.error is not None]
            if failed:
                raise failed[0]
        except MillraceError as error:
            self._not_before = self._monotonic() + PAUSE_MS / 1000
            self.close()
            log.warning(
                "commitGroup: the progress of the stream is not shown in group %s for the next "
                "%d s; the stream goes on: %s",
                self._group,
                PAUSE_MS // 1000,
                error,
            )
        else:
            self._committed = dict(offsets)

    def close(self) -> None:
        """Disconnects; the next commit connects again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _connected(self) -> Admin:
        if self._admin is None:
            settings = client_options(self._options)
            timeout_ms = min(settings["request_timeout_ms"], COMMIT_TIMEOUT_MS)
            settings["request_timeout_ms"] = settings["connect_timeout_ms"] = timeout_ms
            self._admin = started(
                lambda: Admin(self._options.servers, **settings), deadline_ms=timeout_ms
            )
        return self._admin
