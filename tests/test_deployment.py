"""The files in `deploy` start a broker: systemd's unit, the image and the compose file.

There is neither systemd nor Docker here. Each test takes the command and the settings out of a file
and runs them, on a directory and a port of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from millrace_server.config import BrokerConfig
from millrace_server.config_reload import changes
from millrace_server.config_sources import load
from tests.command_line import COMMAND, write_script
from tests.free_ports import free_ports
from tests.hang_timeout import HANG_TIMEOUT_S

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "millrace.service").read_text()
IMAGE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DATA = "/var/lib/millrace"


def unit(key: str) -> list[str]:
    """The values of a key of the unit."""
    return re.findall(rf"^{key}=(.*)$", UNIT, re.M)


def unit_command(directory: Path) -> str:
    """The command of the unit, with its file of settings in a directory."""
    (command,) = unit("ExecStart")
    settings = directory / "millrace.toml"
    settings.write_text((DEPLOY / settings.name).read_text())
    assert command.count(f"/etc/millrace/{settings.name}") == 1
    return command.replace("/etc/millrace", str(directory))


def image(instruction: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile."""
    return re.findall(rf"^ *{instruction} (.*)$", IMAGE, re.M)


def settings_of(assignments: list[str]) -> dict[str, str]:
    """NAME=VALUE as a dictionary."""
    return dict(each.split("=", 1) for text in assignments for each in shlex.split(text))


def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("needs systemd-analyze")
    copy = tmp_path / "millrace.service"
    copy.write_text(UNIT.replace("/opt/millrace/bin/millrace", str(write_script(tmp_path))))
    done = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_starts_a_broker_that_drains_in_time(tmp_path: Path) -> None:
    command = unit_command(tmp_path)
    settings = settings_of(unit("Environment"))
    assert settings["MILLRACE_DATA"] == f"/var/lib/{unit('StateDirectory')[0]}" == DATA
    with serving(command, {**settings, "MILLRACE_LISTEN": "127.0.0.1:0"}, tmp_path):
        pass
    assert int(unit("TimeoutStopSec")[0]) * 1_000 > BrokerConfig().drain_timeout_ms


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_broker_tells_systemd_when_it_serves_and_when_it_stops(
    tmp_path: Path, is_abstract: bool
) -> None:
    assert unit("Type") == ["notify"]
    command = unit_command(tmp_path)
    name = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name[1:]}" if is_abstract else name)
        systemd.settimeout(HANG_TIMEOUT_S)
        told = {"NOTIFY_SOCKET": name, "MILLRACE_LISTEN": "127.0.0.1:0"}
        with serving(command, {**settings_of(unit("Environment")), **told}, tmp_path):
            assert systemd.recv(100) == b"READY=1"
            systemd.setblocking(False)
            with pytest.raises(BlockingIOError):
                systemd.recv(100)
        systemd.settimeout(HANG_TIMEOUT_S)
        assert systemd.recv(100) == b"STOPPING=1"


def test_the_unit_reloads_a_broker_that_tells_systemd_when_it_has(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.settimeout(HANG_TIMEOUT_S)
        told = {"NOTIFY_SOCKET": name, "MILLRACE_LISTEN": "127.0.0.1:0"}
        settings = {**settings_of(unit("Environment")), **told}
        with serving(unit_command(tmp_path), settings, tmp_path) as process:
            assert systemd.recv(100) == b"READY=1"
            before_us = time.monotonic_ns() // 1_000
            (reload,) = unit("ExecReload")
            subprocess.run(shlex.split(reload.replace("$MAINPID", str(process.pid))), check=True)
            # systemd takes a message with an earlier time for that of another reload.
            message = re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=(\d+)", systemd.recv(100))
            assert message is not None and int(message[1]) >= before_us
            assert systemd.recv(100) == b"READY=1"


def test_every_example_in_the_file_of_settings_reloads() -> None:
    text = re.sub(r"^# (?=\[|\w+ = )", "", (DEPLOY / "millrace.toml").read_text(), flags=re.M)
    config = load(toml=text, toml_name="", environment={}, flags={})
    assert len(config.sources) == len(changes(BrokerConfig(), config).applied) == 3


def test_a_broker_serves_when_systemd_cannot_be_told(tmp_path: Path) -> None:
    command = unit_command(tmp_path)
    nowhere = {"NOTIFY_SOCKET": str(tmp_path / "nowhere"), "MILLRACE_LISTEN": "127.0.0.1:0"}
    with serving(command, {**settings_of(unit("Environment")), **nowhere}, tmp_path):
        pass


def test_the_image_starts_a_broker_that_advertises_its_published_port(tmp_path: Path) -> None:
    settings = settings_of(image("ENV"))
    command = f"{word(image('ENTRYPOINT'))} {word(image('CMD'))}"
    config = load(toml=None, toml_name="", environment=settings, flags={})
    port = image("EXPOSE")[0]
    assert (config.listen, config.advertise) == (f"0.0.0.0:{port}", f"localhost:{port}")
    # A test listens on loopback only.
    with serving(command, {**settings, "MILLRACE_LISTEN": "127.0.0.1:0"}, tmp_path):
        pass


def word(instructions: list[str]) -> str:
    """The last of several instructions, in its form of a list."""
    return shlex.join(yaml.safe_load(instructions[-1]))


def test_the_image_copies_what_the_package_is_built_from() -> None:
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for arguments in image("COPY")
        if not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    }
    assert copied == kept
    assert [name for name in sorted(copied) if not (ROOT / name).exists()] == []


def test_the_health_check_of_the_image_sees_a_broker_and_its_absence(tmp_path: Path) -> None:
    check = word([image("HEALTHCHECK")[0].partition("CMD ")[2]])
    address = f"127.0.0.1:{free_ports()}"
    here = [*COMMAND, *shlex.split(check.replace("localhost:9092", address))[1:]]

    def is_healthy() -> bool:
        return subprocess.run(here, capture_output=True, timeout=HANG_TIMEOUT_S).returncode == 0

    assert not is_healthy()
    settings = {"MILLRACE_LISTEN": address, "MILLRACE_DATA": DATA}
    with serving("millrace serve", settings, tmp_path):
        assert is_healthy()


def test_the_compose_file_keeps_data_and_publishes_the_port_on_loopback() -> None:
    (broker,) = COMPOSE["services"].values()
    context = DEPLOY / broker["build"]["context"]
    assert (context / broker["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert broker["volumes"] == [f"{next(iter(COMPOSE['volumes']))}:{DATA}"]
    assert image("VOLUME") == [DATA]
    assert broker["ports"] == ["127.0.0.1:9092:9092"]
    assert set(broker["environment"]) <= set(settings_of(image("ENV")))
    assert broker["environment"]["MILLRACE_ADVERTISE"].endswith(":-localhost:9092}")


@contextmanager
def serving(
    command: str, settings: dict[str, str], directory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command line of `deploy` until it serves; it must end with 0 on SIGTERM."""
    program, *arguments = shlex.split(command)
    assert Path(program).name == "millrace"
    assert settings["MILLRACE_DATA"] == DATA
    own = {**settings, "MILLRACE_DATA": str(directory / "data"), "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith(b"listening on "), process.stderr.read()
            yield process
            process.terminate()
            assert process.wait(HANG_TIMEOUT_S) == 0
        finally:
            process.kill()
