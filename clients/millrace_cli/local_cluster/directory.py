"""The directory of a local cluster.

    DIR/cluster.json     the layout: brokers and ports
    DIR/lock             held by the process that runs the cluster
    DIR/broker-1/        data directory of broker 1
    DIR/broker-1.log     what broker 1 writes to stderr, of all its processes

Owns the checks before a process is started. A new directory gets its layout when its ports are
free; nothing is written before that.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from millrace_cli.exits import CommandError, Exit
from millrace_cli.local_cluster.layout import (
    HOST,
    LAYOUT_NAME,
    PORT_MAX,
    BrokerPorts,
    Layout,
    LayoutError,
)
from millrace_server.disk.lock import LOCK_NAME, DataDirectoryLocked, DirectoryLock
from millrace_server.disk.os_disk import DIRECTORY_MODE

PORT = 9092
"""The first port of a new cluster."""
BROKERS = 3
"""The number of brokers of a new cluster: it survives the loss of one."""


class LocalClusterError(CommandError):
    """The cluster cannot be started, or has ended; `code` is the exit code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


class ClusterDirectory:
    """The directory of a cluster that this process runs, until `release`."""

    def __init__(self, path: Path, layout: Layout, lock: DirectoryLock) -> None:
        self.path = path
        self.layout = layout
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, brokers: int | None = None, port: int | None = None) -> Self:
        """Takes the directory of a cluster, or makes that of a new one.

        A new one has `brokers` brokers on the ports from `port` on; port 0 lets the system choose.
        Raises `LocalClusterError`.
        """
        layout_file = path / LAYOUT_NAME
        is_new = not layout_file.exists()
        if is_new:
            _check_empty(path)
            layout = _new_layout(BROKERS if brokers is None else brokers, port)
        else:
            layout = _known_layout(layout_file)
            _check_same(path, layout, brokers, port)
        try:
            path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            lock = DirectoryLock(path)
        except DataDirectoryLocked as error:
            raise LocalClusterError(
                Exit.LOCKED,
                f"the cluster in {path} is run by process {error.pid}: stop it, or choose another "
                "directory with --data",
            ) from None
        except OSError as error:
            raise LocalClusterError(
                Exit.DISK, f"the directory {path} cannot be used: {error}"
            ) from None
        try:
            _check_ports(layout, is_new=is_new)
            if is_new:
                _write(layout_file, layout)
        except BaseException:
            lock.release()
            raise
        return cls(path, layout, lock)

    def data(self, broker: BrokerPorts) -> Path:
        """The data directory of a broker."""
        return self.path / f"broker-{broker.node_id}"

    def log(self, broker: BrokerPorts) -> Path:
        """The log file of a broker."""
        return self.path / f"broker-{broker.node_id}.log"

    def release(self) -> None:
        """Lets another process run the cluster."""
        self._lock.release()


def _check_empty(path: Path) -> None:
    try:
        names = [entry.name for entry in path.iterdir() if entry.name != LOCK_NAME]
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalClusterError(
            Exit.DISK, f"the directory {path} cannot be used: {error}"
        ) from None
    if names:
        raise LocalClusterError(
            Exit.USAGE,
            f"{path} has other files and no {LAYOUT_NAME}: it is not the directory of a cluster; "
            "choose another one with --data",
        )


def _known_layout(file: Path) -> Layout:
    try:
        return Layout.decode(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, LayoutError) as error:
        raise LocalClusterError(
            Exit.DISK,
            f"{file} cannot be read: {error}; restore it, or choose another directory with --data",
        ) from None


def _check_same(path: Path, layout: Layout, brokers: int | None, port: int | None) -> None:
    if brokers not in (None, len(layout.brokers)):
        raise LocalClusterError(
            Exit.USAGE,
            f"the cluster in {path} has {len(layout.brokers)} brokers and not {brokers}; start it "
            "without --brokers, or choose another directory with --data",
        )
    if port not in (None, layout.brokers[0].port):
        raise LocalClusterError(
            Exit.USAGE,
            f"the cluster in {path} has the ports from {layout.brokers[0].port} on; start it "
            "without --port, or choose another directory with --data",
        )


def _new_layout(brokers: int, port: int | None) -> Layout:
    count = 2 * brokers
    first = PORT if port is None else port
    if first == 0:
        with ExitStack() as stack:
            # All at a time, so that no two are the same.
            held = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
            return Layout.of_ports([each.getsockname()[1] for each in held])
    if first + count - 1 > PORT_MAX:
        raise LocalClusterError(
            Exit.USAGE,
            f"--port {first}: {brokers} brokers need {count} ports from there on, up to {PORT_MAX}",
        )
    return Layout.of_ports(range(first, first + count))


def _check_ports(layout: Layout, *, is_new: bool) -> None:
    """A broker would say it too, but only after others have started."""
    remedy = "choose other ports with --port" if is_new else "end the program that listens there"
    for broker in layout.brokers:
        for port in (broker.port, broker.broker_port):
            try:
                socket.create_server((HOST, port)).close()
            except OSError as error:
                raise LocalClusterError(
                    Exit.LISTEN,
                    f"broker {broker.node_id} cannot listen on {HOST} port {port}: "
                    f"{error.strerror}; {remedy}",
                ) from None


def _write(file: Path, layout: Layout) -> None:
    try:
        partial = file.with_suffix(".new")
        partial.write_text(layout.encode(), "utf-8")
        partial.replace(file)
    except OSError as error:
        raise LocalClusterError(Exit.DISK, f"{file} cannot be written: {error}") from None
