"""The files of a new, empty log.

Owns what a directory must hold to be opened as a log: a segment, its epoch table and a checkpoint.
"""

from __future__ import annotations

from typing import Final

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.config import LogConfig
from millrace_server.log.epochs import FIRST_EPOCH, write_epochs
from millrace_server.log.producers import Producers
from millrace_server.log.recovered import Recovered, RecoveryReport
from millrace_server.log.segment import Segment

_CHECKPOINT: Final = Checkpoint(0, 0, 0, 0, -1, 0, (), b"", is_clean=True)


def create_files(disk: Disk, directory: str, config: LogConfig) -> Recovered:
    """Makes the directory of a new log, durably. Blocking; raises `OSError`."""
    disk.make_directory(directory)
    segment = Segment.create(disk, directory, 0, index_interval_bytes=config.index_interval_bytes)
    try:
        write_epochs(disk, directory, FIRST_EPOCH)
        write_checkpoint(disk, directory, _CHECKPOINT)
        disk.sync_directory(directory.rpartition("/")[0])
    except OSError:
        segment.close_files()
        raise
    report = RecoveryReport(True, True, 0, 0, None, 0, 0, 0)
    return Recovered([segment], 0, 0, 0, Producers(), report, saved_epochs=FIRST_EPOCH)
