"""Files, directories and errors of the real disk; the lock; the page cache."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace_server.disk.cold_reads import PageCache
from millrace_server.disk.lock import DataDirectoryLocked, DirectoryLock
from millrace_server.disk.os_disk import DiskError, OsDisk, OsFile


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path / "data")


def test_the_data_directory_and_its_files_are_for_the_owner_alone(disk: OsDisk) -> None:
    disk.make_directory("orders-0")
    disk.open("orders-0/file", create=True, write=True).release()
    assert disk.root.stat().st_mode & 0o777 == 0o700
    assert (disk.root / "orders-0").stat().st_mode & 0o777 == 0o700
    assert (disk.root / "orders-0" / "file").stat().st_mode & 0o777 == 0o600


def test_bytes_are_written_and_read_at_their_positions(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    file.pwrite(b"world", 6)
    file.pwrite(memoryview(bytearray(b"hello ")), 0)
    assert file.pread(11, 0) == b"hello world"
    assert file.pread(100, 6) == b"world"
    assert file.pread(1, 11) == b""
    file.preallocate(4096)
    assert file.size() == 4096
    assert file.pread(4, 11) == bytes(4)
    file.truncate(5)
    file.sync()
    assert file.pread(100, 0) == b"hello"
    file.release()


def test_a_write_the_kernel_cuts_short_is_finished(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("file", create=True, write=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    file.pwrite(b"0123456789", 2)
    monkeypatch.undo()
    assert file.pread(100, 0) == b"\0\x000123456789"
    file.release()


def test_the_descriptor_is_closed_with_the_last_reference(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    fd = file.fileno()
    file.retain()
    file.release()
    assert os.fstat(fd).st_size == 0
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    for use in (file.retain, file.release):
        with pytest.raises(ValueError, match="is closed"):
            use()
    with pytest.raises(DiskError, match=r"read .*file"):
        file.pread(1, 0)


def test_descriptors_are_not_inherited_by_child_processes(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    assert not os.get_inheritable(file.fileno())
    file.release()


def test_errors_name_the_operation_the_path_and_a_remedy(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DiskError, match=r"open .*data/nothing: No such file") as missing:
        disk.open("nothing")
    assert missing.value.errno == errno.ENOENT
    file = disk.open("file", create=True, write=True)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskError, match=r"write .*free space on the disk") as refused:
        file.pwrite(b"x", 0)
    assert refused.value.errno == errno.ENOSPC
    file.release()


def test_creating_a_file_that_exists_is_refused(disk: OsDisk) -> None:
    disk.open("file", create=True, write=True).release()
    with pytest.raises(DiskError) as refused:
        disk.open("file", create=True, write=True)
    assert refused.value.errno == errno.EEXIST


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a/../../b", "nul\0"])
def test_a_path_cannot_leave_the_data_directory(disk: OsDisk, path: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        disk.open(path)


def test_directories_are_listed_renamed_and_removed(disk: OsDisk) -> None:
    assert disk.list_directory("orders-0") == []
    disk.make_directory("orders-0")
    for name in ("b", "a"):
        disk.open(f"orders-0/{name}", create=True, write=True).release()
    assert disk.list_directory("orders-0") == ["a", "b"]
    disk.rename("orders-0/a", "orders-0/b")
    disk.sync_directory("orders-0")
    assert disk.list_directory("orders-0") == ["b"]
    disk.remove("orders-0/b")
    assert not disk.exists("orders-0/b")
    disk.remove_directory("orders-0")
    assert disk.list_directory("") == []


def test_a_second_broker_is_refused_with_the_holder_of_the_directory(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DataDirectoryLocked, match=f"in use by process {os.getpid()}"):
        DirectoryLock(tmp_path)
    lock.release()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_the_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path;"
        "from millrace_server.disk.lock import DirectoryLock;"
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryLocked) as refused:
            DirectoryLock(tmp_path)
        assert refused.value.pid == holder.pid
        holder.kill()
        holder.wait()
    DirectoryLock(tmp_path).release()


TRIES = 100


def drop_from_cache(file: OsFile) -> bool:
    """Asks the kernel to forget the file's pages; False if it keeps any, as some always do."""
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return PageCache().is_absent(file, 0, file.size())


def cached(file: OsFile, size: int, position: int) -> bytes | None:
    found = file.pread_cached(size, position)
    return None if found is None else bytes(found)


def test_a_range_is_read_without_the_disk_or_not_at_all(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    # More than one read-ahead: the kernel begins to read what is not there, and may have a small
    # range before it would have to wait.
    data = bytes(range(256)) * (32 << 10)
    file.pwrite(data, 0)
    if cached(file, 1_000, 5_000) is None:
        pytest.skip("this file system does not tell what the page cache holds")
    assert cached(file, 1_000, 5_000) == data[5_000:6_000]
    assert cached(file, 10, len(data) - 9) is None, "the file ends within the range"
    if not drop_from_cache(file):
        pytest.skip("this kernel or file system keeps the pages")
    found = {cached(file, len(data), 0) for _ in range(TRIES) if drop_from_cache(file)}
    assert None in found
    assert found <= {None, data}
    file.pread(1_000, 5_000)
    assert cached(file, 1_000, 5_000) == data[5_000:6_000]
    file.release()


def test_a_cold_range_is_recognised(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    file.pwrite(bytes(1_000_001), 0)
    cache = PageCache()
    assert not cache.is_cold(file, 0, 1_000_001), "what was just written is in the cache"
    assert not cache.is_absent(file, 0, 1_000_001)
    if not drop_from_cache(file):
        pytest.skip("this kernel or file system does not tell what the page cache holds")
    assert cache.is_cold(file, 500_000, 1)
    assert cache.is_absent(file, 0, 1_000_001)
    file.pread(1, 500_000)
    assert not cache.is_cold(file, 500_000, 1)
    assert cache.is_cold(file, 0, 1_000_001)
    assert not cache.is_absent(file, 0, 1_000_001)
    file.release()


def test_a_passing_read_leaves_the_page_cache_as_it_was(disk: OsDisk) -> None:
    size = 3 << 20
    data = os.urandom(size)
    file = disk.open("file", create=True, write=True)
    file.pwrite(data, 0)
    if not drop_from_cache(file):
        pytest.skip("this kernel or file system does not tell what the page cache holds")
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    kept = range(1 << 20, 2 << 20)
    assert file.pread(len(kept), kept.start) == data[kept.start : kept.stop]
    other = disk.open("file")
    cache = PageCache()
    passing = cache.passing(other)
    assert passing.path == file.path
    step = 200_001
    read = b"".join(passing.pread(step, position) for position in range(0, size, step))
    assert read == data
    assert not cache.is_cold(file, kept.start, len(kept)), "the other pages stay"
    assert cache.is_absent(file, 0, 15 << 16)
    assert cache.is_absent(file, 33 << 16, 15 << 16)
    other.release()
    file.release()


def test_where_the_kernel_cannot_tell_everything_counts_as_warm(disk: OsDisk) -> None:
    file = disk.open("file", create=True, write=True)
    cache = PageCache()
    assert not cache.is_cold(file, 0, 0)
    file.release()
    assert not cache.is_cold(file, 0, 10)
    assert not cache.is_absent(file, 0, 10)
