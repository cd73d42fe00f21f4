"""The files of a new, empty log.

Owns what a directory must hold to be opened as a log: a segment, its epoch table and a checkpoint.
They are written in place: a crash leaves some of them, and the caller marks a creation as complete
by what it writes last.
"""

from __future__ import annotations

from typing import Final

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint import CHECKPOINT_NAME, Checkpoint
from millrace_server.log.checkpoint_file import create_file
from millrace_server.log.config import LogConfig
from millrace_server.log.epochs import EPOCHS_NAME, FIRST_EPOCH
from millrace_server.log.producers import Producers
from millrace_server.log.recovered import Recovered, RecoveryReport
from millrace_server.log.segment import Segment

_CHECKPOINT: Final = Checkpoint(0, 0, 0, 0, -1, 0, (), b"", is_clean=True)


def create_files(disk: Disk, directory: str, config: LogConfig, *, sync_parent: bool) -> Recovered:
    """Makes the directory of a new log and all that is in it, durably. Blocking; `OSError`.

    Without `sync_parent` the directory's own name is not durable: that takes one sync for many.
    """
    disk.make_directory(directory)
    segment = Segment.create(disk, directory, 0, index_interval_bytes=config.index_interval_bytes)
    try:
        create_file(disk, f"{directory}/{EPOCHS_NAME}", FIRST_EPOCH.encode())
        create_file(disk, f"{directory}/{CHECKPOINT_NAME}", _CHECKPOINT.encode())
        disk.sync_directory(directory)
        if sync_parent:
            disk.sync_directory(directory.rpartition("/")[0])
    except OSError:
        segment.close_files()
        raise
    report = RecoveryReport(True, True, 0, 0, None, 0, 0, 0)
    return Recovered([segment], 0, 0, 0, Producers(), report, saved_epochs=FIRST_EPOCH)
