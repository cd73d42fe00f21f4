"""One broker per data directory.

Owns the lock file. The kernel drops the lock with the process, however it ends, so a file that is
left behind means nothing; its content only names the process that holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from millrace_server.disk.os_disk import FILE_MODE, DiskError

LOCK_NAME: Final = "lock"
_PID_BYTES_MAX: Final = 20


class DataDirectoryLocked(Exception):
    """Another process serves from the data directory; `pid` is None if it does not say which."""

    def __init__(self, path: Path, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"the data directory {path} is in use by {holder}: stop it, or choose another directory"
        )
        self.path = path
        self.pid = pid


class DirectoryLock:
    """Held from construction to `release`, or until the process ends."""

    def __init__(self, directory: Path) -> None:
        """Takes the lock; raises `DataDirectoryLocked` if it is held, and `OSError`."""
        path = directory / LOCK_NAME
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise DiskError("lock", str(path), error) from error
        try:
            self._take(directory)
        except BaseException:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Lets another process in; does nothing the second time."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _take(self, directory: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise DiskError("lock", str(directory / LOCK_NAME), error) from error
            holder = os.pread(self._fd, _PID_BYTES_MAX, 0).strip()
            pid = int(holder) if holder.isdigit() else None
            raise DataDirectoryLocked(directory, pid) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
