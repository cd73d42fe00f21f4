"""Where the next micro-batch of a stream ends.

Owns waiting for records, the limits of a micro-batch, and what is done about losses. The answers of
the brokers are `log_watch`'s, the arithmetic is `continuation`'s and `admission`'s; Spark is not
known here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from millrace.errors import OffsetOutOfRange
from millrace.records import TopicPartition
from millrace_spark.admission import (
    Backlog,
    Step,
    admit_records,
    admit_steps,
    first_stretch,
    is_due,
    shares,
)
from millrace_spark.bounds import OFFSET_MAX
from millrace_spark.continuation import (
    Continuation,
    Extents,
    go_on,
    plan,
    receded_partitions,
    unknown_partitions,
)
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.log_watch import LogWatch, named_topics
from millrace_spark.options import ReadOptions
from millrace_spark.ranges import OffsetRange
from millrace_spark.stream_offsets import StreamOffsets

LOOK_PAUSE_MS_MIN = 20
"""Between two looks at the ends of the logs, while nothing waits."""
LOOK_PAUSES = 20
"""A pause is at least so many times as long as the look before it, which bounds what idling costs
where there are many partitions."""
RECEDED_WAIT_MS = 2_000
"""For a log that ends before the stream: a broker that has just begun to lead may not know yet how
far the others have come, and says less for a moment."""
STEPS_PER_SHARE = 8
"""In how many steps a partition's share of bytes is cut; a share is missed by a step at most."""

_TRIES = 3

log = logging.getLogger("millrace_spark")


class MicroBatches:
    """The ends of one micro-batch after another."""

    def __init__(self, options: ReadOptions, watch: LogWatch) -> None:
        self._options = options
        self._watch = watch
        self._target: StreamOffsets | None = None
        self._last_end_s: float | None = None
        self.latest: StreamOffsets | None = None
        """The ends of the logs when they were last looked at."""

    def start(self) -> StreamOffsets:
        """Where a new stream begins. Raises `OptionError` and `DataLost`."""
        self._require_named(self._watch.latest().topic_ids.keys())
        return self._watch.start()

    def stop_at_latest(self) -> None:
        """From now on nothing that comes later is part of any micro-batch."""
        self._target = self._watch.latest()

    def next_end(self, start: StreamOffsets, *, is_limited: bool, wait_ms: int) -> StreamOffsets:
        """The end of the micro-batch that begins at `start`; `start` itself if there is none yet.

        Waits up to `wait_ms` for something to be there, and for a log that has receded up to
        `RECEDED_WAIT_MS`. Raises `DataLost` unless losses are to be skipped.
        """
        began_s = time.monotonic()
        while True:
            look_s = time.monotonic()
            going = self._look(start, began_s)
            if self._is_worth(start, going, is_limited=is_limited):
                self._tell(going.losses)
                self._last_end_s = time.monotonic()
                return self._admit(going) if is_limited else _all_of(going)
            now_s = time.monotonic()
            pause_s = max(LOOK_PAUSE_MS_MIN / 1000, LOOK_PAUSES * (now_s - look_s))
            left_s = began_s + wait_ms / 1000 - now_s
            if self._target is not None or left_s <= 0:
                return start
            time.sleep(min(pause_s, left_s))

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """What each task of the micro-batch from `start` to `end` reads.

        Raises `DataLost` unless losses are to be skipped.
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
            # Whatever is selected by now: what is repeated is to be what it was at first.
            latest = self._watch.latest_of(moved)
            earliest = self._watch.earliest(latest.offsets)
            ranges, losses = plan(start, end, Extents(latest, earliest))
            self._tell(losses)
            tries_left -= 1
            try:
                return self._watch.cut(ranges)
            except OffsetOutOfRange:
                # Retention took some of it meanwhile, which is found out by planning again.
                if not tries_left:
                    raise

    def _look(self, start: StreamOffsets, began_s: float) -> Continuation:
        while True:
            latest = self._watch.latest() if self._target is None else self._target
            is_over = time.monotonic() >= began_s + RECEDED_WAIT_MS / 1000
            if self._target is not None or is_over or not receded_partitions(start, latest):
                break
            time.sleep(LOOK_PAUSE_MS_MIN / 1000)
        if self._options.fail_on_data_loss:
            self._require_named({where.topic for where in start.offsets} | latest.topic_ids.keys())
        self.latest = latest
        earliest = self._watch.earliest(unknown_partitions(start, latest))
        return go_on(start, Extents(latest, earliest))

    def _is_worth(self, start: StreamOffsets, going: Continuation, *, is_limited: bool) -> bool:
        if going.losses or going.offsets != start:
            return True
        if not any(map(len, going.backlogs.values())):
            return False
        if not is_limited or self._options.min_offsets_per_trigger is None:
            return True
        # What is there when the query begins is read to its end, however little it is.
        if self._target is not None:
            return True
        last_s = self._last_end_s
        return is_due(
            going.backlogs,
            records_min=self._options.min_offsets_per_trigger,
            waited_ms=None if last_s is None else (time.monotonic() - last_s) * 1000,
            delay_ms_max=self._options.max_trigger_delay_ms,
        )

    def _admit(self, going: Continuation) -> StreamOffsets:
        backlogs = going.backlogs
        records_max = self._options.max_offsets_per_trigger
        bytes_max = self._options.max_bytes_per_trigger
        if records_max is not None:
            backlogs = _shortened(backlogs, admit_records(backlogs, records_max))
        if bytes_max is not None:
            backlogs = _shortened(backlogs, self._admit_bytes(backlogs, bytes_max))
        return _at_ends(going, backlogs)

    def _admit_bytes(
        self, backlogs: Mapping[TopicPartition, Backlog], bytes_max: int
    ) -> Mapping[TopicPartition, int]:
        """The end offsets of a batch of `bytes_max`, and at least one step of each backlog."""
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                return self._ends_by_bytes(backlogs, bytes_max)
            except OffsetOutOfRange:
                if not tries_left:
                    raise

    def _ends_by_bytes(
        self, backlogs: Mapping[TopicPartition, Backlog], bytes_max: int
    ) -> Mapping[TopicPartition, int]:
        """Asks the brokers how large the backlogs are, and cuts only the beginning of each."""
        earliest = self._watch.earliest(where for where, each in backlogs.items() if len(each))
        # What retention has removed takes no bytes; that it is lost comes out when it is planned.
        there = {
            where: Backlog(max(each.start_offset, earliest[where]), each.end_offset)
            for where, each in backlogs.items()
            if where in earliest
        }
        there = {where: each for where, each in there.items() if len(each)}
        wholes = self._watch.steps(there, step_bytes=OFFSET_MAX)
        sizes = {where: sum(step.size_bytes for step in steps) for where, steps in wholes.items()}
        if sum(sizes.values()) <= bytes_max:
            return {}
        taken = shares({where: max(1, size) for where, size in sizes.items()}, bytes_max)
        steps: dict[TopicPartition, list[Step]] = {}
        # One question for shares of about one size.
        by_step_bytes: dict[int, dict[TopicPartition, Backlog]] = {}
        for where, share_bytes in taken.items():
            step_bytes = 1 << max(0, (share_bytes // STEPS_PER_SHARE).bit_length() - 1)
            by_step_bytes.setdefault(step_bytes, {})[where] = first_stretch(
                there[where], size_bytes=sizes[where], bytes_max=share_bytes
            )
        for step_bytes, stretches in by_step_bytes.items():
            steps |= self._watch.steps(stretches, step_bytes=step_bytes)
        return {where: admit_steps(steps[where], taken[where]) for where in taken}

    def _require_named(self, known: Collection[str]) -> None:
        """Raises `OptionError` for a topic that is selected by its name and not among these."""
        for name in named_topics(self._options.selection):
            if name not in known:
                raise OptionError(
                    str(self._options.selection),
                    f"there is no topic {name}; create it, or correct the name",
                )

    def _tell(self, losses: Iterable[str]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLost(
                    f"{loss}. Set failOnDataLoss to false to go on with what there is, or begin "
                    "anew with another checkpoint"
                )
            log.warning("%s; the stream goes on, as failOnDataLoss=false says", loss)


def _shortened(
    backlogs: Mapping[TopicPartition, Backlog], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Backlog]:
    return {
        where: Backlog(each.start_offset, ends.get(where, each.end_offset))
        for where, each in backlogs.items()
    }


def _all_of(going: Continuation) -> StreamOffsets:
    return _at_ends(going, going.backlogs)


def _at_ends(going: Continuation, backlogs: Mapping[TopicPartition, Backlog]) -> StreamOffsets:
    ends = {where: each.end_offset for where, each in backlogs.items()}
    return StreamOffsets({**going.offsets.offsets, **ends}, going.offsets.topic_ids)
