"""Apache Kafka, to be measured against: its jars, and one broker of it.

The jars are fetched once, from Maven Central by the Ivy that comes with pyspark, into
`$XDG_CACHE_HOME/millrace` or `~/.cache/millrace`. Java 17 is needed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

VERSION = "4.3.1"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
FETCH_TIMEOUT_S = 900


class NoKafka(Exception):
    """Apache Kafka is not to be had here; the text says why."""


def cache_directory() -> Path:
    """Where what was fetched is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "millrace"


def classpath(artifact: str = "kafka_2.13", *, version: str = VERSION) -> str:
    """The jars of an artifact of Apache Kafka and of all that it needs. Raises `NoKafka`."""
    cache = cache_directory()
    listed = cache / f"{artifact}-{version}.classpath"
    if listed.exists() and all(Path(jar).exists() for jar in listed.read_text().split(":")):
        return listed.read_text()
    cache.mkdir(parents=True, exist_ok=True)
    import pyspark

    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    found = listed.with_suffix(".new")
    command = ["java", "-jar", str(ivy), "-cache", str(cache / "ivy"), "-confs", "default"]
    command += ["-dependency", "org.apache.kafka", artifact, version, "-cachepath", str(found)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKafka(f"its jars cannot be fetched: {error}") from error
    if done.returncode or not found.exists():
        raise NoKafka(f"its jars cannot be fetched: {(done.stdout + done.stderr)[-300:]}")
    found.write_text(found.read_text().strip())
    found.rename(listed)
    return listed.read_text()


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def apache_kafka(
    data: Path | None = None, *, tls: Certificate | None = None, **settings: object
) -> Iterator[tuple[str, int]]:
    """One broker that is its own controller: its address for clients, and its process id.

    `data` is its directory, temporary by default. With `tls` its listener for clients has TLS, and
    none without. `settings` are its own, with `_` for `.`. It is
    stopped in order. Raises `NoKafka`.
    """
    jars = classpath()
    port, controller_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-") as directory:
        file = Path(directory) / "server.properties"
        where = data or Path(directory) / "data"
        own = {name.replace("_", "."): value for name, value in settings.items()}
        if tls is not None:
            own |= _tls_settings(tls, port, controller_port)
        write_properties(file, where, port, controller_port, own)
        java = ["java", "-cp", jars]
        if not (where / "meta.properties").exists():
            format_directory(jars, file)
        log = Path(directory) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*java, "-Xms1g", "-Xmx1g", "kafka.Kafka", str(file)], stdout=output, stderr=output
            )
        try:
            _until_listening(process, port, log)
            try:
                yield f"127.0.0.1:{port}", process.pid
            except OSError as error:
                if process.poll() is None:
                    raise
                ended = f"it has ended with {process.returncode}: {log.read_text()[-3_000:]}"
                raise NoKafka(ended) from error
        finally:
            process.terminate()
            # With thousands of topics it takes minutes, and nothing is needed of it any more.
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
            process.kill()
            process.wait()


class Certificate(NamedTuple):
    """PEM files: of the broker, its key (PKCS #8) before its certificate, and of its authority."""

    broker: Path
    ca: Path


def _tls_settings(tls: Certificate, port: int, controller_port: int) -> dict[str, object]:
    return {
        "listeners": f"SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tls.broker,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tls.ca,
    }


def write_properties(
    file: Path, data: Path, port: int, controller_port: int, settings: Mapping[str, object]
) -> None:
    """The settings of one broker that is its own controller; `settings` are added to them."""
    given = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        **settings,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))


def format_directory(jars: str, file: Path) -> None:
    """Makes the data directory that a file of properties names. Raises `NoKafka`."""
    identity = str(uuid.uuid4())
    tool = ["java", "-cp", jars, "kafka.tools.StorageTool", "format", "-t", identity]
    done = subprocess.run([*tool, "-c", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoKafka(f"its directory cannot be made: {(done.stdout + done.stderr)[-300:]}")


def _until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise NoKafka(f"it does not start: {log.read_text()[-300:]}")
