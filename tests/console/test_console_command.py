"""`millrace console`: its flags, its exit codes, and its process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from millrace_server.testing import BrokerThread
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S


def ended(*flags: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code and stderr of a console that does not start."""
    done = subprocess.run(
        [*COMMAND, "console", *flags],
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--listen", "8080"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1:²"), "is not HOST:PORT"),
        (("--listen", "0.0.0.0:0"), "add --insecure-listen"),
        (("--listen", ":0"), "add --insecure-listen"),
        (("--password-file", "/nothing"), "--password-file"),
        (("-X", "nothing=1"), "-X"),
    ],
)
def test_a_flag_that_is_wrong_ends_it_with_2(flags: tuple[str, ...], sentence: str) -> None:
    code, stderr = ended(*flags)
    assert code == 2
    assert sentence in " ".join(stderr.split())


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    code, stderr = ended(environment={"MILLRACE_CONSOLE_PASSWORD": "short"})
    assert (code, "fewer than 8 characters" in " ".join(stderr.split())) == (2, True)
    file = tmp_path / "password"
    file.write_text("short\n")
    assert ended("--password-file", str(file))[0] == 2


def test_an_address_in_use_ends_it_with_4_and_no_broker_with_69() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert ended("--listen", f"127.0.0.1:{port}")[0] == 4
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
        assert ended("--listen", "127.0.0.1:0", "--servers", servers)[0] == 69


def test_the_process_serves_until_it_is_terminated(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("a long password\n")
    flags = ("--listen", "127.0.0.1:0", "--password-file", str(file))
    with BrokerThread() as broker:
        command = [*COMMAND, "console", *flags, "--servers", broker.servers]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip().removeprefix("open ")
            with urllib.request.urlopen(f"{url}login", timeout=HANG_TIMEOUT_S) as answer:
                assert b"Log in" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(f"{url}api/cluster", timeout=HANG_TIMEOUT_S)
            refused.value.close()
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
    assert (process.returncode, stderr) == (143, "")
