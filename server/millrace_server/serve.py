"""A broker as a process of its own: from settings to an exit code.

Owns the order of things around a `Node`: logs, the limit of open files, the directory's lock, the
event loop, reloads, and what each way of ending is called. Knows no command line: `millrace serve`
brings the flags.

    stdout   one line, `listening on HOST:PORT`, when connections are accepted
    systemd  READY=1 then, STOPPING=1 when the broker begins to drain, RELOADING=1 and again
             READY=1 around a reload
    stderr   log lines, and one line that says why when the exit code is not 0
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server import logs
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig, ConfigError
from millrace_server.config_reload import changes
from millrace_server.config_sources import load
from millrace_server.disk.cold_reads import PageCache
from millrace_server.disk.lock import DataDirectoryLocked, DirectoryLock
from millrace_server.disk.os_disk import DIRECTORY_MODE, DiskError
from millrace_server.environment.seams import Environment
from millrace_server.log.errors import CorruptLog, LogFailed
from millrace_server.logs import get_logger
from millrace_server.machine import LoopSpawn, machine_of
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.monitoring.extra import MonitoringOf, monitoring_of
from millrace_server.net.server import ListenError
from millrace_server.net.tls import TlsFilesError
from millrace_server.node import Node
from millrace_server.process_signals import ProcessSignals
from millrace_server.service_manager import READY, STOPPING, notify, notify_reloading
from millrace_server.token_keys import TokenKeysError

log = get_logger("millrace.serve")


MachineOf = Callable[[BrokerConfig, LoopSpawn], Environment]


class Exit(IntEnum):
    """How a broker process ends."""

    OK = 0
    """It was asked to stop, and drained."""
    CONFIG = 2
    """A setting is not valid; nothing was opened."""
    LOCKED = 3
    """Another process serves from the data directory."""
    LISTEN = 4
    """The address cannot be listened on."""
    DISK = 5
    """The data cannot be read at the start, or written while running."""
    UNAVAILABLE = 69
    """The cluster's metadata quorum did not answer in time, at the start."""


@dataclass(frozen=True, slots=True)
class _Process:
    """What the process has beside the broker. `read` gives the configuration as it is now."""

    signals: ProcessSignals
    environment: Mapping[str, str]
    read: Callable[[], BrokerConfig]


GC_THRESHOLDS = (400, 2, 12_500)
"""Nothing that a request leaves behind is a cycle. So the collector looks at young objects, a few
at a time, and at all of them once in ten million: thousands of long polls are half a million
objects, which takes it 250 ms."""
SWITCH_S = 0.000_01
"""How long a thread waits for the interpreter before it asks for it; the kernel's timer makes some
60 us of it. A worker that compacts keeps the event loop waiting so long each time. And a flush
needs the interpreter twice: where the loop gives it back and takes it again sooner than this, as
with every send, the thread does not ask, and gets it by chance. Beside thousands of long polls that
wake, the 99th percentile of an acked produce was 31 ms with 100 us here, and is 16 ms with this.
Python's own is 5 ms."""


def serve(
    *,
    config_file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    make_machine: MachineOf = machine_of,
) -> Exit:
    """Runs a broker in this process until a signal or a fault ends it.

    `flags` are fields of `BrokerConfig`; None means not given. The signals are those of
    `process_signals`. A test gives the broker another machine.
    """
    read = partial(read_config, config_file, environment, flags)
    try:
        config = read()
        monitoring = monitoring_of(config)
    except ConfigError as error:
        return _ended(Exit.CONFIG, error)
    process = _Process(ProcessSignals(), environment, read)
    logs.configure(level=config.log_level, style=config.log_format)
    raise_open_files_limit(config.limits.connections_max)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)
    data = Path(config.data)
    try:
        data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = DirectoryLock(data)
    except DataDirectoryLocked as error:
        return _ended(Exit.LOCKED, error)
    except DiskError as error:
        return _ended(Exit.DISK, error)
    except OSError as error:
        return _ended(
            Exit.DISK,
            f"the data directory {data} cannot be made: {error.strerror}; name another with --data",
        )
    try:
        with asyncio.Runner(loop_factory=_loop_factory(config.loop)) as runner:
            return runner.run(_run(config, make_machine, monitoring, process))
    finally:
        lock.release()


def read_config(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> BrokerConfig:
    """The settings of a TOML file, the environment and flags. Raises `ConfigError`."""
    toml = None
    if file is not None:
        try:
            toml = file.read_text("utf-8")
        except OSError as error:
            raise ConfigError("--config", str(file), error.strerror or str(error)) from None
        except UnicodeDecodeError as error:
            raise ConfigError("--config", str(file), f"is not UTF-8: {error.reason}") from None
    config = load(toml=toml, toml_name=str(file), environment=environment, flags=flags)
    if not config.initial_password_file:
        return config
    password = _initial_password(Path(config.initial_password_file))
    source = config.sources["initial_password_file"]
    sources = {**config.sources, "initial_password": source}
    return replace(config, initial_password=password, sources=sources)


def _initial_password(file: Path) -> str:
    try:
        password = file.read_text("utf-8").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        reason = f"{error.strerror}; without initial_user no password is needed"
        raise ConfigError("initial_password_file", str(file), reason) from None
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8: {error.reason}"
        raise ConfigError("initial_password_file", str(file), reason) from None
    if not password:
        raise ConfigError("initial_password_file", str(file), "its first line is empty")
    return password


def raise_open_files_limit(connections_max: int) -> None:
    """Raises the soft limit to the hard one: each connection and each segment takes a descriptor.

    The soft limit is 1024 by tradition, for the sake of programs that use `select`. Warns when
    even the hard limit is too low for `connections_max`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A hard limit beyond what the kernel allows now is refused; then the old one stays.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and connections_max >= hard:
        log.warning(
            "connections_max is above the limit of open files; raise it (ulimit -Hn)",
            connections_max=connections_max,
            open_files_max=hard,
        )


async def _run(
    config: BrokerConfig,
    make_machine: MachineOf,
    monitoring: MonitoringOf | None,
    process: _Process,
) -> Exit:
    process.signals.listen(asyncio.get_running_loop())
    spawn = LoopSpawn()
    try:
        try:
            node = Node(config, make_machine(config, spawn), cold_reads=PageCache())
        except (TlsFilesError, TokenKeysError) as error:
            return _ended(Exit.CONFIG, error)
        if monitoring is None or config.metrics_address is None:
            return await _serve(node, spawn, process)
        server = monitoring(node)
        try:
            await server.start(config.metrics_address)
        except ListenError as error:
            return _ended(Exit.LISTEN, error)
        try:
            return await _serve(node, spawn, process)
        finally:
            await server.close()
    finally:
        spawn.close()
        process.signals.close()


async def _serve(node: Node, spawn: LoopSpawn, process: _Process) -> Exit:
    stop = process.signals.stop
    try:
        has_started = await _start(node, stop, spawn)
    except ListenError as error:
        return _ended(Exit.LISTEN, error)
    except (OSError, CorruptLog, LogFailed, UnreadableMetadata) as error:
        return _ended(Exit.DISK, error)
    except ApiError as refused:
        return _refused(node.config, refused)
    if not has_started:
        return Exit.OK
    _announce(node)
    notify(process.environment, READY)
    reloading = spawn.task(_reload_on_request(node, spawn, process), name="reload")
    try:
        await node.run_until(stop)
    except Exception as error:
        # Nothing is drained: what the failed disk holds is for the next start's recovery to
        # say, and an ack given now might be a lie.
        return _ended(Exit.DISK, error)
    finally:
        reloading.cancel()
    notify(process.environment, STOPPING)
    await node.stop()
    return Exit.OK


async def _reload_on_request(node: Node, spawn: LoopSpawn, process: _Process) -> None:
    """Until it is cancelled. Requests that come during a reload are one more reload."""
    requested, env = process.signals.reload, node.broker.env
    while await requested.wait():
        requested.clear()
        notify_reloading(process.environment, env.clock.monotonic_ns() // 1_000)
        try:
            _reload(node, await spawn.blocking(process.read))
        except ConfigError as error:
            log.error(
                "configuration not taken over, the one before stays in force; correct it and send "
                "SIGHUP again",
                reason=str(error),
            )
        env.reread_files()
        notify(process.environment, READY)


def _reload(node: Node, read: BrokerConfig) -> None:
    """Puts into force what can change now, and says what does and what does not."""
    reload = changes(node.config, read)
    node.reload(reload.config)
    logs.configure(level=reload.config.log_level, style=reload.config.log_format)
    raise_open_files_limit(reload.config.limits.connections_max)
    log.info("configuration read again", changed=dict(reload.applied))
    if reload.at_next_start:
        log.warning(
            "settings differ from those in force; they take effect at the next start",
            settings=", ".join(reload.at_next_start),
        )


async def _start(node: Node, stop: asyncio.Event, spawn: LoopSpawn) -> bool:
    """Whether the node has started; False if it was asked to stop before.

    A start may wait for other brokers. Raises what `Node.start` raises.
    """
    starting = spawn.task(node.start(), name="start")
    stopping = spawn.task(stop.wait(), name="stop")
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        log.info("stopped before it had started")
        return False
    starting.result()
    return True


def _refused(config: BrokerConfig, refused: ApiError) -> Exit:
    if refused.code is ErrorCode.REQUEST_TIMED_OUT:
        return _ended(Exit.UNAVAILABLE, refused.message)
    if refused.code is ErrorCode.NOT_CONTROLLER:
        members = ", ".join(map(str, config.quorum_members))
        return _ended(
            Exit.UNAVAILABLE,
            f"not registered within {config.quorum_wait_ms} ms: {refused.message}; start a "
            f"majority of brokers {members}, and check `quorum` in their configuration",
        )
    return _ended(Exit.DISK, refused.message)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "uvloop":
        # uvloop does not exist for every platform; the broker runs on either loop.
        with suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop
    return None


def _announce(node: Node) -> None:
    shown = []
    for listener in node.config.listeners:
        host, port = node.addresses[listener.name]
        scheme = listener.scheme
        shown.append(f"{scheme}[{host}]:{port}" if ":" in host else f"{scheme}{host}:{port}")
    # Who started the broker may have stopped listening; that is no reason not to serve.
    with suppress(BrokenPipeError):
        print(f"listening on {', '.join(shown)}", flush=True)


def _ended(how: Exit, why: object) -> Exit:
    print(f"millrace serve: {' '.join(str(why).split())}", file=sys.stderr, flush=True)
    return how
