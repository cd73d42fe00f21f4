"""The real machine: the seams of `environment` over the operating system and the event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from millrace_server.authentication.oauthbearer import OAUTHBEARER
from millrace_server.config import BrokerConfig
from millrace_server.disk.os_disk import OsDisk
from millrace_server.disk.worker_threads import WorkerThreads
from millrace_server.environment.seams import Environment, Spawn
from millrace_server.net.listener import OsNet
from millrace_server.net.tls import BrokerTlsFiles, TlsFiles
from millrace_server.token_keys import TokenKeys

T = TypeVar("T")
WORKER_THREADS = 8
"""Blocking calls in flight: syncs of different logs, cold reads, trims. A disk gains nothing
from more, and each thread costs a stack."""


class SystemClock:
    """The system's clocks."""

    def wall_ms(self) -> int:
        """See `seams.Clock`."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See `seams.Clock`."""
        return time.monotonic_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)


def tls_files(config: BrokerConfig) -> TlsFiles | None:
    """The files of the listeners with TLS, None where there are none. Raises `TlsFilesError`."""
    if not any(each.is_tls for each in config.listeners):
        return None
    return TlsFiles(
        config.tls_certificate, config.tls_key, config.tls_client_ca, clock=SystemClock()
    )


def broker_tls_files(config: BrokerConfig) -> BrokerTlsFiles | None:
    """The files for TLS between brokers, None where there is none. Raises `TlsFilesError`."""
    if not config.has_broker_tls or config.broker_address is None:
        return None
    host, _ = config.broker_address
    return BrokerTlsFiles(
        config.broker_tls_certificate,
        config.broker_tls_key,
        config.broker_tls_ca,
        host=host,
        clock=SystemClock(),
    )


def token_keys(config: BrokerConfig, spawn: Spawn) -> TokenKeys | None:
    """The keys with which tokens are checked, None for a broker that takes none.

    Raises `TokenKeysError`.
    """
    if OAUTHBEARER not in config.mechanisms:
        return None
    return TokenKeys(config.sasl_oauthbearer_jwks, clock=SystemClock(), spawn=spawn)


class LoopSpawn:
    """Tasks on the running loop, blocking calls in a pool of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = WorkerThreads(WORKER_THREADS, name="millrace")

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """See `seams.Spawn`."""
        return self._loop.create_task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """See `seams.Spawn`."""
        return self._threads.submit(work, *args)

    def close(self) -> None:
        """Waits for the calls in flight and ends the threads."""
        self._threads.close()


def machine_of(config: BrokerConfig, spawn: LoopSpawn) -> Environment:
    """The real environment of a broker. Raises `TlsFilesError` and `TokenKeysError`."""
    return this_machine(
        config.data, spawn, net=net_of(config), token_keys=token_keys(config, spawn)
    )


def net_of(config: BrokerConfig) -> OsNet:
    """The network, with the certificates of a broker. Raises `TlsFilesError`."""
    return OsNet(tls_files(config), broker_tls_files(config))


def this_machine(
    data_directory: str | Path,
    spawn: LoopSpawn,
    *,
    net: OsNet | None = None,
    token_keys: TokenKeys | None = None,
) -> Environment:
    """The real environment, with `data_directory` as its disk; call it on the broker's loop."""
    net = net or OsNet()

    def reread_files() -> None:
        net.reread_files()
        if token_keys is not None:
            token_keys.reread()

    return Environment(
        clock=SystemClock(),
        disk=OsDisk(Path(data_directory)),
        net=net,
        # Nonces and secrets must not be guessed from numbers that were drawn before.
        rng=random.SystemRandom(),  # noqa: TID251
        spawn=spawn,
        token_keys=token_keys,
        reread_files=reread_files,
    )
