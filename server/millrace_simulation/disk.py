"""A disk in memory that keeps two views, cached and durable, and can lose the difference.

An operation that changes something has a number, from 0. `fail_at` makes one raise `OSError`,
`crash_at` makes one raise `PowerCut` before or in the middle of its work. A write that fails has
written a part. `after_power_cut` is the disk as the next start finds it: each unsynced write is
absent, whole, cut at a 512-byte boundary, or there in arbitrary sectors, in any combination, and
each directory has kept a prefix
of its unsynced changes. `after_kill` keeps all that was done: the process died, the machine did
not. A failed sync leaves in the cache what it did not write, and no later sync writes it: so does
Linux. After `PowerCut` nothing can be changed any more.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace_server.environment.seams import DiskSpace, ReadBuffer

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The machine stops here; no handler of errors may catch it."""


@dataclass
class _Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes] | int] = field(default_factory=list)
    """Writes as (position, data), truncations and preallocations as the new size."""

    def apply(self, content: bytearray, change: tuple[int, bytes] | int) -> None:
        if isinstance(change, int):
            del content[change:]
            content.extend(bytes(change - len(content)))
            return
        position, data = change
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data

    def change(self, change: tuple[int, bytes] | int) -> None:
        self.apply(self.cached, change)
        self.unsynced.append(change)

    def after_power_cut(self, rng: random.Random) -> _Inode:
        content = bytearray(self.durable)
        for change in self.unsynced:
            fate = rng.choice(("absent", "whole", "cut", "sectors"))
            if isinstance(change, int):
                if fate != "absent":
                    self.apply(content, change)
                continue
            position, data = change
            boundaries = range(SECTOR_BYTES - position % SECTOR_BYTES, len(data), SECTOR_BYTES)
            if fate == "whole":
                self.apply(content, change)
            elif fate == "cut" and boundaries:
                self.apply(content, (position, data[: rng.choice(boundaries)]))
            elif fate == "sectors":
                for start, end in zip((0, *boundaries), (*boundaries, len(data)), strict=True):
                    if rng.random() < 0.5:
                        self.apply(content, (position + start, data[start:end]))
        return _Inode(bytearray(content), content)


_Entries = dict[str, _Inode | None]
"""Path to file, or to None for a directory."""


class Tree(_Entries):
    """Entries that know which names each directory has."""

    def __init__(self, entries: _Entries) -> None:
        super().__init__()
        self._names: dict[str, set[str]] = {}
        for path, inode in entries.items():
            self[path] = inode

    def __setitem__(self, path: str, inode: _Inode | None) -> None:
        super().__setitem__(path, inode)
        directory, _, name = path.rpartition("/")
        if name:
            self._names.setdefault(directory, set()).add(name)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        directory, _, name = path.rpartition("/")
        self._names[directory].discard(name)

    def copy(self) -> Tree:
        return Tree(self)

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(self._names.get(directory, ()))

    def inside(self, directory: str) -> list[str]:
        """The paths of all that is in a directory, at any depth."""
        paths = []
        for name in self.names(directory):
            path = f"{directory}/{name}"
            paths += [path, *self.inside(path)]
        return paths


@dataclass(frozen=True)
class _Gone:
    """A name no longer stands for `inode`; it may stand for another one by now."""

    inode: _Inode | None


_Change = dict[str, _Inode | _Gone | None]


class FaultyFile:
    """See `seams.File`."""

    def __init__(self, disk: FaultyDisk, path: str, inode: _Inode, *, write: bool) -> None:
        self.path = path
        self.references = 1
        self._disk = disk
        self._inode = inode
        self._can_write = write

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", self.path)

    def pread(self, size: int, position: int) -> bytes:
        self._check_open()
        code = self._disk.judge_read(self.path)
        if code:
            raise OSError(code, os.strerror(code), self.path)
        return bytes(self._inode.cached[position : position + size])

    def pread_cached(self, size: int, position: int) -> None:
        """What a read finds is the disk's to say, so no range counts as cached."""

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        self._check_writable()
        content = bytes(data)
        self._disk.growth_bytes = max(0, position + len(content) - len(self._inode.cached))

        def write_part() -> None:
            self._write(content[: self._disk.part_bytes(len(content))], position)

        with self._disk.operation("write", self.path, write_part):
            self._write(content, position)

    def preallocate(self, size: int) -> None:
        self._check_writable()
        self._disk.growth_bytes = max(0, size - len(self._inode.cached))
        with self._disk.operation("preallocate", self.path):
            if size > len(self._inode.cached):
                self._inode.change(size)

    def truncate(self, size: int) -> None:
        self._check_writable()
        with self._disk.operation("truncate", self.path):
            self._inode.change(size)

    def sync(self) -> None:
        self._check_open()
        inode = self._inode
        with self._disk.operation("sync", self.path, inode.unsynced.clear):
            for change in inode.unsynced:
                inode.apply(inode.durable, change)
            inode.unsynced.clear()

    def size(self) -> int:
        self._check_open()
        return len(self._inode.cached)

    def retain(self) -> None:
        self._check_open()
        self.references += 1

    def release(self) -> None:
        self._check_open()
        self.references -= 1

    def _write(self, data: bytes, position: int) -> None:
        self._inode.change((position, data))

    def _check_open(self) -> None:
        if self.references < 1:
            raise ValueError(f"{self.path} is closed")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._can_write:
            raise OSError(errno.EBADF, "opened for reading", self.path)


class _Operation:
    """Runs its body unless the disk is to fail or stop here."""

    def __init__(self, failure: BaseException | None) -> None:
        self._failure = failure

    def __enter__(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __exit__(self, *_: object) -> None:
        return


class FaultyDisk:
    """See `seams.Disk` and the head of this module."""

    def __init__(self) -> None:
        self.operations = 0
        self.crash_at: int | None = None
        self.fail_at: dict[int, int] = {}
        self.judge: Callable[[str, str], int | None] = _nothing_fails
        """Called with the name and path of each operation; an errno makes it fail."""
        self.judge_read: Callable[[str], int | None] = _nothing_read_fails
        """The same for the path of each read, which is no operation."""
        self.growth_bytes = 0
        """What the write or preallocation that is judged needs of the room that is left."""
        self.part_bytes: Callable[[int], int] = _half
        """How much of a write that fails is written."""
        self.on_crash: Callable[[], object] = lambda: None
        self.is_dead = False
        self.journal: list[str] = []
        self.files: list[FaultyFile] = []
        self._cached = Tree({"": None})
        self._durable: _Entries = {"": None}
        self._unsynced: dict[str, list[_Change]] = {}

    @property
    def path(self) -> str:
        return "/"

    def space(self) -> DiskSpace:
        return DiskSpace(-1, -1)

    def operation(
        self, name: str, path: str, half: Callable[[], object] | None = None
    ) -> _Operation:
        number = self.operations
        self.operations += 1
        self.journal.append(f"{name} {path}")
        if self.is_dead:
            return _Operation(PowerCut("there is no power"))
        failure: BaseException | None = None
        code = self.fail_at.get(number) or self.judge(name, path)
        if code:
            failure = OSError(code, os.strerror(code), path)
        elif self.crash_at == number:
            failure = PowerCut(f"at {self.journal[-1]}")
        if failure is not None and half is not None and (code or name != "sync"):
            half()
        if failure is not None and not code:
            self.is_dead = True
            self.on_crash()
        return _Operation(failure)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> FaultyFile:
        inode = self._cached.get(path)
        if create:
            if path in self._cached:
                raise FileExistsError(errno.EEXIST, "exists", path)
            with self.operation("create", path):
                inode = _Inode()
                self._change(_parent(path), {path: inode})
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        file = FaultyFile(self, path, inode, write=write)
        self.files.append(file)
        return file

    def make_directory(self, path: str) -> None:
        with self.operation("make directory", path):
            self._change(_parent(path), {path: None})

    def list_directory(self, path: str) -> list[str]:
        return self._cached.names(path)

    def exists(self, path: str) -> bool:
        return path in self._cached

    def rename(self, source: str, target: str) -> None:
        if source not in self._cached:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        with self.operation("rename", source):
            moved = [source, *self._cached.inside(source)]
            change: _Change = {path: _Gone(self._cached[path]) for path in moved}
            for path in moved:
                change[target + path.removeprefix(source)] = self._cached[path]
            self._change(_parent(target), change)
            if source in self._unsynced:
                # The directory's own changes stand before its move, which carries them along.
                del self._unsynced[source]

    def remove(self, path: str) -> None:
        if self._cached.get(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        with self.operation("remove", path):
            self._change(_parent(path), {path: _Gone(self._cached[path])})

    def remove_directory(self, path: str) -> None:
        with self.operation("remove directory", path):
            gone = {name: _Gone(self._cached[name]) for name in (path, *self._cached.inside(path))}
            self._unsynced.pop(path, None)
            self._change(_parent(path), dict(gone))

    def sync_directory(self, path: str) -> None:
        with self.operation("sync directory", path):
            for change in self._unsynced.pop(path, []):
                _apply(self._durable, change)

    @property
    def open_files(self) -> list[str]:
        """Paths of the files with references left."""
        return [file.path for file in self.files if file.references > 0]

    def file_bytes(self, path: str) -> bytes:
        """The content of a file as the running process sees it."""
        inode = self._cached[path]
        assert inode is not None
        return bytes(inode.cached)

    @property
    def has_unsynced(self) -> bool:
        """Whether a power cut now could lose something."""
        inodes = (inode for inode in self._cached.values() if inode is not None)
        return any(self._unsynced.values()) or any(inode.unsynced for inode in inodes)

    def durable_files(self) -> list[str]:
        """Paths of the files of which something is on the disk, sorted."""
        return sorted(path for path, inode in self._cached.items() if inode and inode.durable)

    def durable_bytes(self, path: str) -> bytes:
        """What is on the disk of a file."""
        inode = self._cached[path]
        assert inode is not None
        return bytes(inode.durable)

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Damages a byte of a file, in the cache and on the disk."""
        byte = self.file_bytes(path)[position : position + 1]
        self.damage(path, position, bytes(one ^ 1 << bit for one in byte))

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Puts `data` in the place of what a file holds, in the cache and on the disk.

        Nothing is made longer.
        """
        inode = self._cached[path]
        assert inode is not None
        for content in (inode.cached, inode.durable):
            end = min(len(content), position + len(data))
            content[position:end] = data[: max(0, end - position)]

    def after_kill(self) -> FaultyDisk:
        """The same disk without the process: nothing is lost, nothing more is durable."""
        disk = FaultyDisk()
        disk._cached, disk._durable = self._cached, self._durable
        disk._unsynced = self._unsynced
        return disk

    def after_power_cut(self, rng: random.Random) -> FaultyDisk:
        """The disk as the machine finds it when it starts again."""
        entries = dict(self._durable)
        for changes in self._unsynced.values():
            for change in changes[: rng.randint(0, len(changes))]:
                _apply(entries, change)
        copies: dict[int, _Inode] = {}
        disk = FaultyDisk()
        for path, inode in entries.items():
            if inode is not None:
                inode = copies.setdefault(id(inode), inode.after_power_cut(rng))
            disk._cached[path] = inode
        for path in list(disk._cached):
            if path and _parent(path) not in disk._cached:
                del disk._cached[path]
        disk._durable = dict(disk._cached)
        return disk

    def _change(self, directory: str, change: _Change) -> None:
        _apply(self._cached, change)
        self._unsynced.setdefault(directory, []).append(change)


def _nothing_fails(name: str, path: str) -> int | None:
    return None


def _nothing_read_fails(path: str) -> int | None:
    return None


def _half(size_bytes: int) -> int:
    return size_bytes // 2


def _apply(entries: _Entries, change: _Change) -> None:
    for path, inode in change.items():
        if isinstance(inode, _Gone):
            if entries.get(path, inode) is inode.inode:
                del entries[path]
        else:
            entries[path] = inode


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
