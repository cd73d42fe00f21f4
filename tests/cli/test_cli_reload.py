"""`millrace serve` reads its configuration again at SIGHUP, and outlives no terminal.

One broker for most tests. It tells a socket, as it tells systemd, when a reload has ended: its log
lines are complete then.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from millrace.errors import NotAuthorized
from millrace.sync import Admin
from millrace_cli.dev_certificates import BROKER, make_certificates
from tests.cli.conftest import Serving, serving
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.sasl.issuer import Issuer, write_keys

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace, Serve

Event = dict[str, Any]
READ, REFUSED = "configuration read again", "configuration not taken over"


@dataclass
class Reloading:
    """A broker process, its file of settings, and the socket that it notifies."""

    serving: Serving
    directory: Path
    systemd: socket.socket

    @property
    def plain(self) -> str:
        """HOST:PORT of the listener without TLS."""
        return self.serving.first_line.removeprefix("listening on ").split(", ")[0]

    @property
    def tls_address(self) -> tuple[str, int]:
        host, _, port = self.serving.first_line.rpartition("tls://")[2].rpartition(":")
        return host, int(port)

    def reload(self, toml: str) -> list[Event]:
        """Has the broker read these settings; returns what it logged meanwhile."""
        return self.reload_after(lambda: (self.directory / "millrace.toml").write_text(toml))

    def reload_after(self, change: Callable[[], object]) -> list[Event]:
        """The same after a change of files."""
        self.logged()
        # The reload before may still read a file, and find the change: that counts too.
        change()
        self.serving.process.send_signal(signal.SIGHUP)
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", self.systemd.recv(100))
        assert self.systemd.recv(100) == b"READY=1"
        return self.logged()

    def logged(self) -> list[Event]:
        """The events that were logged and not read yet."""
        text = self._stderr.read()
        return [json.loads(line) for line in (text or b"").splitlines()]

    def wait_for(self, event: str) -> Event:
        """The next event of that name."""
        os.set_blocking(self._stderr.fileno(), True)
        try:
            return event_of(self._stderr, event)
        finally:
            os.set_blocking(self._stderr.fileno(), False)

    @property
    def _stderr(self) -> IO[bytes]:
        assert self.serving.process.stderr is not None
        return self.serving.process.stderr


def event_of(stderr: IO[bytes], event: str) -> Event:
    """The next event of that name, of a process whose log lines are JSON."""
    for line in stderr:
        found: Event = json.loads(line)
        if found["event"] == event:
            return found
    pytest.fail(f"the broker ended without {event!r}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    """With authorization and keys of tokens; flags set `partitions` and `log_format`."""
    directory = tmp_path_factory.mktemp("reload")
    make_certificates(directory / "certificates", hosts=["localhost"], clients=[], days=1)
    (directory / "millrace.toml").write_text("")
    write_keys(directory / "keys.json", Issuer("first", "EdDSA"))
    environment = {
        "NOTIFY_SOCKET": str(directory / "notify"),
        "MILLRACE_AUTHORIZATION": "on",
        "MILLRACE_SASL_MECHANISMS": "SCRAM-SHA-256,OAUTHBEARER",
        "MILLRACE_SASL_OAUTHBEARER_JWKS": str(directory / "keys.json"),
    }
    flags = {
        "listen": "127.0.0.1:0, tls://127.0.0.1:0",
        "tls-certificate": str(directory / "certificates" / BROKER),
        "config": str(directory / "millrace.toml"),
        "data": str(directory / "data"),
        "partitions": "2",
        "log-format": "json",
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(environment["NOTIFY_SOCKET"])
        systemd.settimeout(HANG_TIMEOUT_S)
        given = [f"--{name}={value}" for name, value in flags.items()]
        with serving(*given, environment=environment) as process:
            assert systemd.recv(100) == b"READY=1"
            assert process.process.stderr is not None
            os.set_blocking(process.process.stderr.fileno(), False)
            yield Reloading(process, directory, systemd)


@pytest.fixture
def reloading(running: Reloading) -> Reloading:
    """The broker with the settings of its start."""
    running.reload("")
    return running


def test_a_log_level_takes_effect_at_once(reloading: Reloading) -> None:
    (read,) = reloading.reload('log_level = "debug"')
    assert (read["event"], read["level"]) == (READ, "info")
    assert read["changed"] == {"log_level": "info -> debug"}
    assert ask(reloading.plain, "TOPICS")
    assert reloading.wait_for("connection closed")["level"] == "debug"


def test_a_super_user_takes_effect_for_a_connection_that_is_open(reloading: Reloading) -> None:
    with Admin(reloading.plain) as admin:
        with pytest.raises(NotAuthorized):
            admin.describe_broker_configs()
        (read,) = reloading.reload('super_users = "User:ANONYMOUS"')
        assert read["changed"] == {"super_users": " -> User:ANONYMOUS"}
        configs = admin.describe_broker_configs()
        assert (configs["super_users"].value, configs["super_users"].source) == (
            "User:ANONYMOUS",
            "file",
        )
        reloading.reload("")
        with pytest.raises(NotAuthorized):
            admin.describe_broker_configs()


def test_a_limit_of_connections_holds_for_the_next_one(reloading: Reloading) -> None:
    with connected(reloading.plain) as first:
        assert said(first, "TOPICS")
        reloading.reload("[limits]\nconnections_max = 1\n")
        assert "The broker has 1 connections, its limit" in ask(reloading.plain, "TOPICS")
        assert "limit" not in said(first, "TOPICS")
        reloading.reload("")
        assert "limit" not in ask(reloading.plain, "TOPICS")


def test_a_setting_that_waits_for_the_next_start_is_named_and_stays(reloading: Reloading) -> None:
    read, waits = reloading.reload(
        'super_users = "User:ANONYMOUS"\npartitions = 9\nrack = "a"\n[topic]\n"retention.ms" = 7'
    )
    assert list(read["changed"]) == ["super_users"]
    assert (waits["level"], waits["settings"]) == ("warning", "rack, topic.retention.ms")
    assert "take effect at the next start" in waits["event"]
    with Admin(reloading.plain) as admin:
        configs = admin.describe_broker_configs()
    # A flag still precedes the file.
    assert [(configs[name].value, configs[name].source) for name in ("partitions", "rack")] == [
        ("2", "flag"),
        ("", "default"),
    ]


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("log_level =", "TOML"),
        ('log_levle = "debug"', "did you mean log_level?"),
        ('log_level = "debug"\nsuper_users = "ada"', "super_users: 'ada' is no principal"),
    ],
)
def test_a_wrong_file_is_one_error_and_changes_nothing(
    reloading: Reloading, toml: str, reason: str
) -> None:
    (refused,) = reloading.reload(toml)
    assert refused["event"].startswith(REFUSED)
    assert (refused["level"], reason in refused["reason"]) == ("error", True)
    (read,) = reloading.reload("")
    assert read["changed"] == {}


def test_a_file_that_is_gone_is_one_error_and_changes_nothing(reloading: Reloading) -> None:
    file = reloading.directory / "millrace.toml"
    (refused,) = reloading.reload_after(file.unlink)
    assert "No such file" in refused["reason"]
    (read,) = reloading.reload("")
    assert read["changed"] == {}


def test_a_certificate_is_read_at_once(reloading: Reloading, tmp_path: Path) -> None:
    def renew() -> None:
        renewed = make_certificates(tmp_path, hosts=["localhost"], clients=[], days=1)[-1]
        renewed.replace(reloading.directory / "certificates" / BROKER)

    before = ssl.get_server_certificate(reloading.tls_address)
    events = [each["event"] for each in reloading.reload_after(renew)]
    assert {READ, "TLS files read again"} <= set(events)
    assert ssl.get_server_certificate(reloading.tls_address) != before


def test_keys_of_tokens_are_read_at_once(reloading: Reloading) -> None:
    keys = reloading.directory / "keys.json"
    events = reloading.reload_after(lambda: write_keys(keys, Issuer("second", "EdDSA")))
    # A worker thread reads them; the reload does not wait for it.
    if all(each["event"] != "keys of tokens read" for each in events):
        assert reloading.wait_for("keys of tokens read")["source"] == str(keys)


def test_a_signal_before_the_broker_has_started_does_no_harm(
    millrace: Millrace, tmp_path: Path, voters: list[str]
) -> None:
    with millrace.running("serve", "--data", str(tmp_path), *voters) as process:
        assert process.stderr is not None
        event_of(process.stderr, "waiting for the metadata quorum")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        event_of(process.stderr, "stopped before it had started")
        assert process.wait(timeout=HANG_TIMEOUT_S) == 0


def test_many_signals_and_those_during_the_drain_do_no_harm(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "millrace.toml"
    file.write_text("")
    with (
        serve("--config", str(file), "--log-format", "json") as running,
        socket.create_connection(running.address) as reader,
    ):
        stderr = running.process.stderr
        assert stderr is not None
        for number in range(1, 51):
            file.write_text(f"drain_timeout_ms = {1_000_000 + number}\n")
            running.process.send_signal(signal.SIGHUP)
        last = ""
        while not last.endswith(" 1000050"):
            last = event_of(stderr, READ)["changed"].get("drain_timeout_ms", last)
        # Half of a request, which the drain waits for.
        reader.sendall(b"\0\0\0\x40MR")
        running.process.send_signal(signal.SIGTERM)
        event_of(stderr, "stopping")
        running.process.send_signal(signal.SIGHUP)
        reader.close()
        event_of(stderr, "stopped")
        assert running.process.wait(timeout=HANG_TIMEOUT_S) == 0


def test_a_broker_drains_when_its_terminal_is_closed(tmp_path: Path) -> None:
    with on_terminal(tmp_path, signal.SIG_DFL) as (process, close_terminal):
        close_terminal()
        assert process.wait(timeout=HANG_TIMEOUT_S) == 0
        assert process.stderr is not None
        event_of(process.stderr, "stopped")


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    with on_terminal(tmp_path, signal.SIG_IGN) as (process, close_terminal):
        assert process.stderr is not None
        close_terminal()
        event_of(process.stderr, READ)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_TIMEOUT_S) == 0


@contextmanager
def on_terminal(
    directory: Path, hangup: signal.Handlers
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """A broker that has a controlling terminal, and what closes that; killed on leaving.

    The kernel sends SIGHUP to the leader of the terminal's session, as it does to a shell.
    """
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, hangup)

    with ExitStack() as stack:
        terminal = stack.enter_context(os.fdopen(ours, "rb", buffering=0))
        with os.fdopen(theirs, "rb", buffering=0):
            data = ("--data", str(directory / "data"), "--log-format", "json")
            running = stack.enter_context(serving(*data, before=take_terminal))
        yield running.process, terminal.close


def ask(address: str, line: str) -> str:
    """The first line of the answer to a text command, on a connection of its own."""
    with connected(address) as connection:
        return said(connection, line)


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=HANG_TIMEOUT_S)


def said(connection: socket.socket, line: str) -> str:
    """The first line that a text command is answered with."""
    connection.sendall(f"{line}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        read = connection.recv(1)
        assert read, f"the broker ended the connection after {answer!r}"
        answer += read
    return answer.decode()
