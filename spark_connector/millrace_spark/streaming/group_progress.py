"""A consumer group whose committed offsets show a stream's progress to monitoring tools.

Owns the commits. Spark's checkpoint alone decides where a stream continues. The stream never reads
these offsets, and a failed commit is a warning.
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
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.retry import start_admin

COMMIT_TIMEOUT_MS = 2_000
"""Of one commit, which delays the next micro-batch."""
PAUSE_MS = 30_000
"""The pause after a commit that failed."""

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
        """Raises `OptionError` for a group with members, whose commits would conflict.

        Raises `ConnectionFailed` if no broker answers within the deadline.
        """
        with closing(self._start_admin(self._options.deadline_ms)) as admin:
            try:
                found = admin.describe_group(self._group)
            except GroupNotFound:
                return
        if found.members:
            raise OptionError(
                "commitGroup",
                f"{self._group} has {len(found.members)} members, which commit their own offsets; "
                "name a group that only this stream uses",
            )

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the offsets that changed since the last commit; logs a failure."""
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
                "commitGroup: group %s does not show the progress of the stream for the next "
                "%d s; the stream continues: %s",
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
            self._admin = self._start_admin(min(self._options.deadline_ms, COMMIT_TIMEOUT_MS))
        return self._admin

    def _start_admin(self, deadline_ms: int) -> Admin:
        return start_admin(
            self._options.servers, self._options.credentials, deadline_ms=deadline_ms
        )
