"""What the page cache holds, for those who must not wait for the disk or take others' pages.

`sendfile` of a range that is not in the page cache blocks: inline it took the 99th percentile of
the neighbours from 0.5 to 6.5 ms, behind a thread that reads first it stayed at 0.47. Owns the
question; who reads, and when, is decided by the connection. Source: cachestat(2), Linux 6.5. On
an older kernel, and on other systems, every range counts as warm.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from typing import Final

from millrace_server.environment.seams import File, ReadableFile

_CACHESTAT: Final = 451
"""The number of the system call, the same on every architecture."""

_NOT_AVAILABLE: Final = frozenset({errno.ENOSYS, errno.EPERM})
"""An older kernel, or a sandbox that does not know the call: asking again is pointless."""

_PAGE_BYTES: Final = mmap.PAGESIZE
_DROP_BYTES: Final = 64 * 1024
"""What a passing reader drops at once, or leaves because another reader brought it there."""


class PageCache:
    """Asks what the page cache holds. One per event loop: its buffers are not shared."""

    __slots__ = ("_call", "_counts", "_counts_address", "_is_available", "_range", "_range_address")

    def __init__(self) -> None:
        self._range = (ctypes.c_uint64 * 2)()
        self._counts = (ctypes.c_uint64 * 5)()
        self._range_address = ctypes.addressof(self._range)
        self._counts_address = ctypes.addressof(self._counts)
        self._is_available = sys.platform == "linux"
        # PyDLL keeps the GIL: the call takes about 1 µs, less than giving it up and taking it.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.argtypes = [
            ctypes.c_long,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_uint,
        ]
        self._call.restype = ctypes.c_long

    def is_cold(self, file: File, position: int, size: int) -> bool:
        """Whether a part of the range is not in the page cache; False if that cannot be told."""
        if not self._is_available or size <= 0:
            return False
        self._range[0], self._range[1] = position, size
        fd = file.fileno()
        if self._call(_CACHESTAT, fd, self._range_address, self._counts_address, 0) != 0:
            self._is_available = ctypes.get_errno() not in _NOT_AVAILABLE
            return False
        pages = (position + size - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
        return int(self._counts[0]) < pages

    def is_absent(self, file: File, position: int, size: int) -> bool:
        """Whether no part of the range is in the page cache; False if that cannot be told."""
        return self.is_cold(file, position, size) and self._counts[0] == 0

    def passing(self, file: File) -> ReadableFile:
        """See `seams.ColdReads`."""
        return _PassingFile(file, PageCache())


class _PassingFile:
    """Reads a file and takes out of the page cache again what was not there before.

    For one thread at a time. Owns no reference of its own.
    """

    __slots__ = ("_cache", "_file")

    def __init__(self, file: File, cache: PageCache) -> None:
        self._file = file
        self._cache = cache
        # What the kernel reads ahead would count as another reader's, and stay.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._file.path

    def pread(self, size: int, position: int) -> bytes:
        """See `seams.ReadableFile`."""
        file, cache = self._file, self._cache
        # From the start of a page: the kernel drops whole pages only.
        first = position - position % _PAGE_BYTES
        absent = [
            place
            for place in range(first, position + size, _DROP_BYTES)
            if cache.is_absent(file, place, _DROP_BYTES)
        ]
        data = file.pread(size, position)
        for place in absent:
            os.posix_fadvise(file.fileno(), place, _DROP_BYTES, os.POSIX_FADV_DONTNEED)
        return data
