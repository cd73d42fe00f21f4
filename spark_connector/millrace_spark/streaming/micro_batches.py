"""The micro-batches of a stream: the end offsets and the ranges of each.

Owns the wait for records, the limits of a micro-batch, and the policy for lost records. Asks the
brokers through `log_client`. `offset_validation` and `rate_limit` do the arithmetic. Knows no
Spark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from millrace.errors import OffsetOutOfRange
from millrace.records import TopicPartition
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options.bounds import OFFSET_MAX
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.streaming.log_client import LogClient, named_topics
from millrace_spark.streaming.offset_validation import (
    Extents,
    ValidatedOffsets,
    new_partitions,
    plan_micro_batch,
    truncated_partitions,
    validate,
)
from millrace_spark.streaming.rate_limit import (
    Backlog,
    Step,
    is_due,
    leading_part,
    limit_bytes,
    limit_records,
    shares,
)
from millrace_spark.streaming.stream_offsets import StreamOffsets

POLL_PAUSE_MS_MIN = 20
"""Between two polls of the ends of the logs, while there is nothing to read."""
POLL_PAUSE_FACTOR = 20
"""A pause is at least so many times as long as the poll before it. This bounds the cost of an idle
stream of many partitions."""
TRUNCATED_WAIT_MS = 2_000
"""For a log that ends before the stream: a new leader reports an older end until it knows the high
watermark."""
STEPS_PER_SHARE = 8
"""Steps in a partition's share of bytes; a share is exact to one step."""

_TRIES = 3

log = logging.getLogger("millrace_spark")


class MicroBatches:
    """Plans one micro-batch after another."""

    def __init__(self, options: ReadOptions, log: LogClient) -> None:
        self._options = options
        self._log = log
        self._target: StreamOffsets | None = None
        self._last_end_s: float | None = None
        self.latest: StreamOffsets | None = None
        """The ends of the logs at the last poll."""

    def start(self) -> StreamOffsets:
        """The offsets where a new stream begins. Raises `OptionError` and `DataLost`."""
        self._require_named(self._log.latest().topic_ids.keys())
        return self._log.start()

    def stop_at_latest(self) -> None:
        """Bounds all further micro-batches by the current ends of the logs."""
        self._target = self._log.latest()

    def next_end(self, start: StreamOffsets, *, is_limited: bool, wait_ms: int) -> StreamOffsets:
        """The end of the micro-batch that begins at `start`; `start` itself if there is none yet.

        Waits up to `wait_ms` for records, and up to `TRUNCATED_WAIT_MS` for a log that ends before
        the stream. Raises `DataLost` unless the options skip lost records.
        """
        began_s = time.monotonic()
        while True:
            poll_s = time.monotonic()
            found = self._poll(start, began_s)
            if self._is_due(start, found, is_limited=is_limited):
                self._report(found.losses)
                self._last_end_s = time.monotonic()
                return self._limited(found) if is_limited else _at_ends(found, found.backlogs)
            now_s = time.monotonic()
            pause_s = max(POLL_PAUSE_MS_MIN / 1000, POLL_PAUSE_FACTOR * (now_s - poll_s))
            left_s = began_s + wait_ms / 1000 - now_s
            if self._target is not None or left_s <= 0:
                return start
            time.sleep(min(pause_s, left_s))

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """The range of each task of the micro-batch from `start` to `end`.

        Raises `DataLost` unless the options skip lost records.
        """
        moved = {
            where
            for where in start.same_incarnation(end)
            if start.offsets[where] < end.offsets[where]
        }
        if not moved:
            return []
        tries_left = _TRIES
        while True:
            # Not only the selected partitions: a repeated micro-batch must read what it first read.
            latest = self._log.latest_of(moved)
            earliest = self._log.earliest(latest.offsets)
            ranges, losses = plan_micro_batch(start, end, Extents(latest, earliest))
            self._report(losses)
            tries_left -= 1
            try:
                return self._log.cut(ranges)
            except OffsetOutOfRange:
                # Retention removed some of it meanwhile; the next plan finds the loss.
                if not tries_left:
                    raise

    def _poll(self, start: StreamOffsets, began_s: float) -> ValidatedOffsets:
        while True:
            latest = self._log.latest() if self._target is None else self._target
            is_over = time.monotonic() >= began_s + TRUNCATED_WAIT_MS / 1000
            if self._target is not None or is_over or not truncated_partitions(start, latest):
                break
            time.sleep(POLL_PAUSE_MS_MIN / 1000)
        if self._options.fail_on_data_loss:
            self._require_named({where.topic for where in start.offsets} | latest.topic_ids.keys())
        self.latest = latest
        earliest = self._log.earliest(new_partitions(start, latest))
        return validate(start, Extents(latest, earliest))

    def _is_due(self, start: StreamOffsets, found: ValidatedOffsets, *, is_limited: bool) -> bool:
        if found.losses or found.offsets != start:
            return True
        if not any(map(len, found.backlogs.values())):
            return False
        if not is_limited or self._options.min_offsets_per_trigger is None:
            return True
        # A query that ends at the current ends of the logs reads them whole, however few records.
        if self._target is not None:
            return True
        last_s = self._last_end_s
        return is_due(
            found.backlogs,
            records_min=self._options.min_offsets_per_trigger,
            waited_ms=None if last_s is None else (time.monotonic() - last_s) * 1000,
            delay_ms_max=self._options.max_trigger_delay_ms,
        )

    def _limited(self, found: ValidatedOffsets) -> StreamOffsets:
        backlogs = found.backlogs
        records_max = self._options.max_offsets_per_trigger
        bytes_max = self._options.max_bytes_per_trigger
        if records_max is not None:
            backlogs = _shortened(backlogs, limit_records(backlogs, records_max))
        if bytes_max is not None:
            backlogs = _shortened(backlogs, self._ends_by_bytes(backlogs, bytes_max))
        return _at_ends(found, backlogs)

    def _ends_by_bytes(
        self, backlogs: Mapping[TopicPartition, Backlog], bytes_max: int
    ) -> Mapping[TopicPartition, int]:
        """The end offsets of a micro-batch of `bytes_max`; at least one step of each backlog."""
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                return self._measured_ends(backlogs, bytes_max)
            except OffsetOutOfRange:
                if not tries_left:
                    raise

    def _measured_ends(
        self, backlogs: Mapping[TopicPartition, Backlog], bytes_max: int
    ) -> Mapping[TopicPartition, int]:
        """Asks the brokers for the sizes of the backlogs, and for steps of their beginnings."""
        earliest = self._log.earliest(where for where, each in backlogs.items() if len(each))
        # Records that retention removed have no bytes. The plan of the ranges reports them as lost.
        present = {
            where: Backlog(max(each.start_offset, earliest[where]), each.end_offset)
            for where, each in backlogs.items()
            if where in earliest
        }
        present = {where: each for where, each in present.items() if len(each)}
        wholes = self._log.steps(present, step_bytes=OFFSET_MAX)
        sizes = {where: sum(step.size_bytes for step in steps) for where, steps in wholes.items()}
        if sum(sizes.values()) <= bytes_max:
            return {}
        taken = shares({where: max(1, size) for where, size in sizes.items()}, bytes_max)
        steps: dict[TopicPartition, list[Step]] = {}
        # One request for shares of about one size.
        by_step_bytes: dict[int, dict[TopicPartition, Backlog]] = {}
        for where, share_bytes in taken.items():
            step_bytes = 1 << max(0, (share_bytes // STEPS_PER_SHARE).bit_length() - 1)
            by_step_bytes.setdefault(step_bytes, {})[where] = leading_part(
                present[where], size_bytes=sizes[where], bytes_max=share_bytes
            )
        for step_bytes, stretches in by_step_bytes.items():
            steps |= self._log.steps(stretches, step_bytes=step_bytes)
        return {where: limit_bytes(steps[where], taken[where]) for where in taken}

    def _require_named(self, known: Collection[str]) -> None:
        """Raises `OptionError` for a topic that the options name and that does not exist."""
        for name in named_topics(self._options.selection):
            if name not in known:
                raise OptionError(
                    str(self._options.selection),
                    f"there is no topic {name}; create it, or correct the name",
                )

    def _report(self, losses: Iterable[str]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLost(
                    f"{loss}. Set failOnDataLoss to false to continue without these records, or "
                    "start the stream with a new checkpoint"
                )
            log.warning("%s; the stream continues, because failOnDataLoss is false", loss)


def _shortened(
    backlogs: Mapping[TopicPartition, Backlog], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Backlog]:
    return {
        where: Backlog(each.start_offset, ends.get(where, each.end_offset))
        for where, each in backlogs.items()
    }


def _at_ends(found: ValidatedOffsets, backlogs: Mapping[TopicPartition, Backlog]) -> StreamOffsets:
    ends = {where: each.end_offset for where, each in backlogs.items()}
    return StreamOffsets({**found.offsets.offsets, **ends}, found.offsets.topic_ids)
