"""A data directory on a real file system.

Owns descriptors, their reference counts and the words of disk errors. Refuses to know what the
files mean, and in which thread a call runs: the protocols in `environment` say which calls block.
Linux and other POSIX systems.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millrace_server.environment.seams import DiskSpace, ReadBuffer

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_HINTS: Final = {
    errno.ENOSPC: "free space on the disk, or lower the retention",
    errno.EDQUOT: "raise the quota of the user the broker runs as, or lower the retention",
    errno.EFBIG: "raise the limit of file size of the user the broker runs as (ulimit -f)",
    errno.EIO: "the disk is failing: check the kernel's log, then restore from a replica",
    errno.EROFS: "the file system is mounted read-only: check the kernel's log",
    errno.EACCES: "the broker's user must own the data directory",
    errno.EPERM: "the broker's user must own the data directory",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
}


class DiskError(OSError):
    """An `OSError` with the operation, the path, and a remedy."""

    def __init__(self, operation: str, path: str, cause: OSError) -> None:
        number = cause.errno or errno.EIO
        super().__init__(number, cause.strerror or os.strerror(number), path)
        self.operation = operation
        self.path = path
        self.hint = _HINTS.get(number)

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.operation} {self.path}: {self.strerror} (errno {self.errno}){hint}"


class OsFile:
    """A descriptor with a count of references; closed with the last. Any thread may use it."""

    __slots__ = ("_fd", "_lock", "_path", "_references")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._references = 1
        # The flusher's thread and the loop both count; a lost decrement would leak the descriptor,
        # a lost increment would close it under a reader.
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """The path with which the disk opened it, absolute."""
        return self._path

    def fileno(self) -> int:
        """The descriptor, -1 when closed."""
        return self._fd

    def pread(self, size: int, position: int) -> bytes:
        """Reads up to `size` bytes; fewer only at the end of the file."""
        try:
            data = os.pread(self._fd, size, position)
            if len(data) == size or not data:
                return data
            return self._read_on(data, size, position)
        except OSError as error:
            raise DiskError("read", self._path, error) from error

    def pread_cached(self, size: int, position: int) -> bytearray | None:
        """The range, by one call of the kernel, if all of it is in the page cache.

        None on a file system that cannot tell, such as one in memory.
        """
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except OSError:
            return None
        return data if count == size else None

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        """Writes all of `data`; one system call unless the kernel takes only a part."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                self._write_on(memoryview(data), written, position)
        except OSError as error:
            raise DiskError("write", self._path, error) from error

    def preallocate(self, size: int) -> None:
        """Reserves space up to `size`."""
        with self._operation("preallocate"):
            os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        """Cuts or extends to `size`."""
        with self._operation("truncate"):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """fdatasync."""
        with self._operation("sync"):
            os.fdatasync(self._fd)

    def size(self) -> int:
        """The size the file system reports, preallocated space included."""
        with self._operation("stat"):
            return os.fstat(self._fd).st_size

    def retain(self) -> None:
        """Adds a reference; `ValueError` if the file is closed."""
        with self._lock:
            if self._references == 0:
                raise ValueError(f"{self._path} is closed")
            self._references += 1

    def release(self) -> None:
        """Drops a reference; `ValueError` if the file is closed."""
        with self._lock:
            if self._references == 0:
                raise ValueError(f"{self._path} is closed")
            self._references -= 1
            if self._references:
                return
            fd, self._fd = self._fd, -1
        os.close(fd)

    def _read_on(self, data: bytes, size: int, position: int) -> bytes:
        parts, count = [data], len(data)
        while count < size:
            data = os.pread(self._fd, size - count, position + count)
            if not data:
                break
            parts.append(data)
            count += len(data)
        return b"".join(parts)

    def _write_on(self, data: memoryview, written: int, position: int) -> None:
        while written < len(data):
            count = os.pwrite(self._fd, data[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the kernel writes nothing and reports no error")
            written += count

    @contextmanager
    def _operation(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(name, self._path, error) from error


class OsDisk:
    """The files below `root`, which is made, for the owner alone, if it is not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with _operation("make directory", str(root)):
            root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._prefix = str(root.resolve())

    @property
    def path(self) -> str:
        """The absolute path of `root`."""
        return self._prefix

    def space(self) -> DiskSpace:
        """Size and free space of the file system."""
        with _operation("read the free space of", self._prefix):
            found = os.statvfs(self._prefix)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> OsFile:
        """Opens a regular file, not to be inherited by child processes."""
        full = self._full(path)
        # The open of a FIFO or a device waits without O_NONBLOCK. Regular files ignore the flag.
        flags = os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        with _operation("create" if create else "open", full):
            fd = os.open(full, flags, FILE_MODE)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "not a regular file; move it out of the data directory")
            return OsFile(full, fd)

    def make_directory(self, path: str) -> None:
        """Makes one directory, which must not exist."""
        full = self._full(path)
        with _operation("make directory", full):
            os.mkdir(full, DIRECTORY_MODE)  # noqa: PTH102  (paths are strings here throughout)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is none."""
        full = self._full(path)
        with _operation("list", full):
            try:
                return sorted(os.listdir(full))  # noqa: PTH208
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there. An unreadable parent is an error, not a no."""
        full = self._full(path)
        with _operation("stat", full):
            try:
                os.lstat(full)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def rename(self, source: str, target: str) -> None:
        """Replaces `target` by `source`."""
        full = self._full(source)
        with _operation("rename", full):
            os.replace(full, self._full(target))  # noqa: PTH105

    def remove(self, path: str) -> None:
        """Removes a file; its space is free when the last descriptor is closed."""
        full = self._full(path)
        with _operation("remove", full):
            os.unlink(full)  # noqa: PTH108

    def remove_directory(self, path: str) -> None:
        """Removes a directory and all that is in it."""
        full = self._full(path)
        with _operation("remove directory", full):
            shutil.rmtree(full)

    def sync_directory(self, path: str) -> None:
        """fsync of the directory."""
        full = self._full(path)
        with _operation("sync directory", full):
            fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _full(self, path: str) -> str:
        """The absolute path; `ValueError` if it would leave the data directory."""
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise ValueError(f"{path!r} is not a path below the data directory")
        return f"{self._prefix}/{path}" if path else self._prefix


@contextmanager
def _operation(name: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(name, path, error) from error
