"""One pass of compaction over a log: a key map of what is dirty, then group by group anew.

Owns the order of the reading and writing, in pieces that a worker thread does one after the other,
and what the pass found. Refuses to know when it runs, how fast, and what becomes of a `Swap`:
`PartitionLog` takes it or not, on its loop.

    key map    from the first dirty offset on, until it is full
    group 1    read ──► filter ──► cleaned segments ──► Swap
    group 2    ...
    finished   the log is clean up to where the key map ends

A pass that ends early has done no harm: each group is as good as it can be with what the map knew,
lower offsets first, so a tombstone never goes before what it deletes.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from millrace_protocol.records import BatchHeader
from millrace_server.environment.seams import Disk
from millrace_server.log.cleanliness import NO_HORIZON, Cleanliness
from millrace_server.log.compaction.batch_cleaning import clean_batch, read_keyed
from millrace_server.log.compaction.cleaned_segment import CleanedSegment, give_names
from millrace_server.log.compaction.key_map import KeyMap
from millrace_server.log.compaction.plan import Plan
from millrace_server.log.config import LogConfig
from millrace_server.log.errors import CorruptLog
from millrace_server.log.flush import DISK_FULL_ERRNOS
from millrace_server.log.integrity.scan import BatchScan, Ending
from millrace_server.log.segment import LOG_SUFFIX, Segment

PIECE_BYTES: Final = 128 * 1024
"""Read in one piece, some 2 ms of work: the loop gets the interpreter when the thread ends."""


PASSING_ERRNOS: Final = DISK_FULL_ERRNOS | {errno.EMFILE, errno.ENFILE, errno.ENOENT}
"""No room, no descriptor, or retention was faster: worth another try, and nothing is lost."""


class Swap(NamedTuple):
    """Neighbouring segments, and the durable ones that hold what is left of them."""

    replaced: tuple[Segment, ...]
    cleaned: tuple[Segment, ...]

    def discard(self) -> None:
        """Removes the cleaned ones, which have not come into force. Blocking."""
        for segment in self.cleaned:
            with suppress(OSError):
                segment.remove_files()


@dataclass(slots=True)
class CleaningReport:
    """What a pass did so far: the bytes of the groups it went over, before and after."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_dropped: int = 0
    keys: int = 0
    is_map_full: bool = False


class Cleaning:
    """Made on the loop, then `step` after `step` in a worker thread until None; or `close`d."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        plan: Plan,
        config: LogConfig,
        *,
        now_ms: int,
        keys_max: int,
        producer_ends: frozenset[tuple[int, int]],
    ) -> None:
        """`producer_ends` are the producer ids and last offsets of the latest batches of all
        producers, which must be remembered. `keys_max` is at least 1."""
        self.report = CleaningReport()
        self._disk = disk
        self._directory = directory
        self._plan = plan
        self._config = config
        self._now_ms = now_ms
        self._producer_ends = producer_ends
        self._keys = KeyMap(start_offset=plan.dirty_offset, keys_max=keys_max)
        self._horizon_ms = NO_HORIZON
        self._output: list[CleanedSegment] = []
        self._is_changed = False
        self._unread_bytes = PIECE_BYTES
        self._work = self._run()

    def step(self) -> Swap | int | None:
        """Does a piece: returns the bytes it read, or what a group became, or None at the end.

        Blocking. Raises `CorruptLog` when the log is not as written, or cannot be read; `OSError`
        with one of `PASSING_ERRNOS` when it should be tried again another time; and any other
        when what was written may not be on the disk, after which the log must fail.
        """
        return next(self._work, None)

    def close(self) -> None:
        """Ends early, and removes what no `Swap` has named. Blocking; not beside a `step`."""
        self._work.close()

    @property
    def cleanliness(self) -> Cleanliness:
        """How far the log is clean once the pass is finished."""
        return Cleanliness(self._keys.end_offset, self._horizon_ms)

    def _run(self) -> Generator[Swap | int, None, None]:
        yield from self._fill_map()
        groups = self._plan.groups(self._keys.end_offset, segment_bytes=self._config.segment_bytes)
        for group in groups:
            try:
                yield from self._write_group(group)
                swap = self._finish_group(group)
            except BaseException:
                self._discard_output()
                raise
            self._output = []
            if swap is not None:
                yield swap

    def _fill_map(self) -> Generator[int, None, None]:
        keys, dirty_offset = self._keys, self._plan.dirty_offset
        for segment in self._plan.segments:
            if segment.end_offset <= dirty_offset:
                continue
            with closing(self._batches(segment)) as batches:
                for header, data in batches:
                    yield from self._pause(header)
                    columns = None
                    if header.next_offset > dirty_offset:
                        columns = read_keyed(data, header)
                    if columns is None:
                        keys.add((), (), next_offset=max(dirty_offset, header.next_offset))
                        continue
                    columns.drop_before(dirty_offset)
                    if not keys.add(columns.keys, columns.offsets, next_offset=header.next_offset):
                        self.report.is_map_full = True
                        self.report.keys = len(keys)
                        return
        self.report.keys = len(keys)

    def _write_group(self, group: list[Segment]) -> Generator[int, None, None]:
        """Writes what is left of a group; the first of `_output` begins where the group does."""
        report, config = self.report, self._config
        end_offset = group[-1].end_offset
        self._is_changed = len(group) > 1
        self._begin_output(group, group[0].base_offset)
        for segment in group:
            report.bytes_before += segment.size_bytes
            with closing(self._batches(segment)) as batches:
                for header, data in batches:
                    yield from self._pause(header)
                    cleaned = clean_batch(
                        data,
                        header,
                        self._keys,
                        now_ms=self._now_ms,
                        delete_retention_ms=config.delete_retention_ms,
                        keep_offsets=self._must_keep(header, end_offset),
                    )
                    report.records_dropped += cleaned.dropped
                    self._is_changed |= cleaned.is_changed
                    self._note_horizon(cleaned.horizon_ms)
                    if cleaned.data is None:
                        continue
                    output = self._output[-1]
                    if not output.has_room(len(cleaned.data)):
                        output = self._begin_output(group, output.segment.end_offset)
                    output.add(cleaned.data)

    def _finish_group(self, group: list[Segment]) -> Swap | None:
        """Makes the output durable; None if the group is as clean as it was."""
        output, report = self._output, self.report
        report.bytes_after += sum(one.segment.size_bytes for one in output)
        if not self._is_changed:
            self._discard_output()
            return None
        for one in output:
            one.finish()
        give_names(self._disk, self._directory, output)
        return Swap(tuple(group), tuple(one.segment for one in output))

    def _begin_output(self, group: list[Segment], base_offset: int) -> CleanedSegment:
        output = CleanedSegment(
            self._disk,
            self._directory,
            base_offset,
            generation=1 + max(segment.generation for segment in group),
            index_interval_bytes=self._config.index_interval_bytes,
        )
        self._output.append(output)
        return output

    def _discard_output(self) -> None:
        for one in self._output:
            one.discard()
        self._output = []

    def _must_keep(self, header: BatchHeader, end_offset: int) -> bool:
        """Whether the offsets of a batch must stay in the log though its records go.

        The last batch says where the segment ends, for recovery without a checkpoint, and a
        producer's last batch what its next sequence number is.
        """
        return (
            header.next_offset == end_offset
            or (header.producer_id, header.last_offset) in self._producer_ends
        )

    def _note_horizon(self, horizon_ms: int | None) -> None:
        if horizon_ms is not None and not NO_HORIZON < self._horizon_ms <= horizon_ms:
            self._horizon_ms = horizon_ms

    def _pause(self, header: BatchHeader) -> Generator[int, None, None]:
        """Ends a piece when enough was read."""
        self._unread_bytes -= header.size_bytes
        if self._unread_bytes <= 0:
            read_bytes = PIECE_BYTES - self._unread_bytes
            self._unread_bytes = PIECE_BYTES
            yield read_bytes

    def _batches(self, segment: Segment) -> Generator[tuple[BatchHeader, bytes], None, None]:
        """Yields the batches of a segment, each checked: corrupt ones must not be cleaned."""
        path = segment.path(LOG_SUFFIX)
        try:
            file = self._disk.open(path)
            try:
                scan = BatchScan(
                    file,
                    0,
                    segment.size_bytes,
                    next_offset=segment.base_offset,
                    is_dense=segment.is_dense,
                )
                for header in scan:
                    yield header, scan.batch(header)
            finally:
                file.release()
        except OSError as error:
            if error.errno in PASSING_ERRNOS:
                raise
            raise CorruptLog(path, 0, f"the disk refuses to read it ({error})") from error
        if scan.ending is not Ending.WHOLE or scan.position != segment.size_bytes:
            raise CorruptLog(path, scan.position, scan.message)
