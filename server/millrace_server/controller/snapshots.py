"""Snapshots of the metadata: files beside the log that say all that it says before an offset.

Owns their names, how one is written atomically, which one is loaded, and what of the log they
replace. Their content is `metadata.snapshot`. The two newest are kept, and the log from the older
one on: a snapshot that the disk has damaged is passed over for the one before it, and the log is
read from there.

    __cluster_metadata-0/00000000000000004711-0000000003.checkpoint

    the records before offset 4711, the last of which is of leader epoch 3; a name without an epoch
    is of a broker that wrote no epochs yet: it is 0

    write the snapshot under another name, sync
    rename it, sync the directory             from here on it is durable
    remove the snapshots before the older one
    begin the log at the older one            the log's next flush writes that down,
                                              then deletes the segments before it

A crash between any two of these leaves more than a start needs.

Source: KIP-630.
"""

from __future__ import annotations

import asyncio
import re

from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Disk, Environment
from millrace_server.log.checkpoint_file import TEMPORARY_SUFFIX, read_file, replace_file
from millrace_server.logs import get_logger
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot, encode_snapshot
from millrace_server.quorum.metadata_log import MetadataLog
from millrace_server.raft.messages import SnapshotId

log = get_logger("millrace.snapshots")
SNAPSHOT_SUFFIX = ".checkpoint"
SNAPSHOTS_KEPT = 2
_STEM = re.compile(r"(?P<end_offset>[0-9]{20})(-(?P<epoch>[0-9]{10}))?")


def load_snapshot(disk: Disk, directory: str) -> ClusterImage:
    """The image of the newest snapshot that is whole, an empty one if there is none. Blocking.

    Raises `UnreadableMetadata` and `OSError`.
    """
    for snapshot in reversed(find_snapshots(disk, directory)):
        try:
            return read_snapshot(disk, directory, snapshot)
        except TornSnapshot as error:
            log.warning("snapshot passed over", end_offset=snapshot.end_offset, reason=str(error))
    return ClusterImage()


def find_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """The snapshots in a directory, the oldest first."""
    stems = (
        name.removesuffix(SNAPSHOT_SUFFIX)
        for name in disk.list_directory(directory)
        if name.endswith(SNAPSHOT_SUFFIX)
    )
    return sorted(
        SnapshotId(int(match["end_offset"]), int(match["epoch"] or 0))
        for match in map(_STEM.fullmatch, stems)
        if match
    )


def read_snapshot(disk: Disk, directory: str, snapshot: SnapshotId) -> ClusterImage:
    """The image of one snapshot. Blocking.

    Raises `TornSnapshot`, `UnreadableMetadata` and `OSError`.
    """
    data = read_file(disk, existing_path(disk, directory, snapshot)) or b""
    return decode_snapshot(data, end_offset=snapshot.end_offset)


def write_snapshot(
    disk: Disk, directory: str, image: ClusterImage, *, epoch: int, now_ms: int
) -> list[SnapshotId]:
    """Makes a snapshot durable, then removes those that are too old. Blocking; raises `OSError`.

    `epoch` is that of the last record before the image's end. Returns the snapshots that are kept,
    the oldest first.
    """
    for name in disk.list_directory(directory):
        if name.endswith(SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX):
            disk.remove(f"{directory}/{name}")
    path = snapshot_path(directory, SnapshotId(image.end_offset, epoch))
    replace_file(disk, path, encode_snapshot(image, now_ms=now_ms))
    found = find_snapshots(disk, directory)
    for snapshot in found[:-SNAPSHOTS_KEPT]:
        disk.remove(existing_path(disk, directory, snapshot))
    return found[-SNAPSHOTS_KEPT:]


def store_snapshot(disk: Disk, directory: str, snapshot: SnapshotId, data: bytes) -> None:
    """Makes a snapshot durable that another broker wrote. Blocking; raises `OSError`."""
    replace_file(disk, snapshot_path(directory, snapshot), data)


def snapshot_path(directory: str, snapshot: SnapshotId) -> str:
    """Where a snapshot is written."""
    return f"{directory}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SNAPSHOT_SUFFIX}"


def existing_path(disk: Disk, directory: str, snapshot: SnapshotId) -> str:
    """Where a snapshot is, which may have a name without an epoch. Blocking; raises `OSError`."""
    path = snapshot_path(directory, snapshot)
    if snapshot.epoch == 0 and not disk.exists(path):
        return f"{directory}/{snapshot.end_offset:020d}{SNAPSHOT_SUFFIX}"
    return path


class SnapshotWriter:
    """Writes a snapshot in the background when the log has grown by `bytes_between`.

    Then deletes what of the log the kept snapshots replace.
    """

    def __init__(self, env: Environment, metadata_log: MetadataLog, *, bytes_between: int) -> None:
        self._env = env
        self._log = metadata_log
        self._bytes_between = bytes_between
        self._snapshot_bytes = 0
        """What had been appended to the log when the last snapshot was begun."""
        self._writing: asyncio.Task[None] | None = None

    def note_commit(self, image: ClusterImage) -> None:
        """Takes the newest image; everything before its end is committed."""
        appended_bytes = self._log.appended_bytes
        if appended_bytes - self._snapshot_bytes < self._bytes_between:
            return
        if self._writing is None or self._writing.done():
            self._snapshot_bytes = appended_bytes
            self._writing = self._env.spawn.task(self._write(image), name="metadata snapshot")

    async def close(self) -> None:
        """Returns when no snapshot is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self, image: ClusterImage) -> None:
        env = self._env
        try:
            epoch = self._log.epoch_before(image.end_offset)
            kept = await env.spawn.blocking(self._write_now, image, epoch, env.clock.wall_ms())
            self._log.note_snapshots(kept)
            if len(kept) == SNAPSHOTS_KEPT:
                self._log.delete_before(kept[0].end_offset)
        except (OSError, ApiError) as error:
            # The log is whole without it; the next one is due after as many bytes again.
            log.warning("snapshot not written", end_offset=image.end_offset, error=str(error))
        else:
            log.info("snapshot written", end_offset=image.end_offset)

    def _write_now(self, image: ClusterImage, epoch: int, now_ms: int) -> list[SnapshotId]:
        directory = self._log.directory
        return write_snapshot(self._env.disk, directory, image, epoch=epoch, now_ms=now_ms)
