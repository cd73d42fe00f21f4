"""`millrace tls`, a broker process with TLS, and commands that connect to it."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace, Serve

BOTH = "127.0.0.1:0, tls://127.0.0.1:0"


def test_the_certificates_serve_a_broker_and_its_clients(
    millrace: Millrace, serve: Serve, tmp_path: Path
) -> None:
    directory = tmp_path / "certificates"
    made = millrace("tls", "make-dev-certs", str(directory), "--client", "loader")
    names = ["ca.pem", "ca-key.pem", "broker.pem", "client-loader.pem"]
    assert made.stdout.splitlines() == [str(directory / name) for name in names]
    modes = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in names}
    assert modes == dict.fromkeys(names, 0o600) | {"ca.pem": modes["ca.pem"]}
    certificate = str(directory / "broker.pem")
    with serve("--listen", BOTH, "--tls-certificate", certificate) as serving:
        plain, with_tls = serving.first_line.removeprefix("listening on ").split(", ")
        assert with_tls.startswith("tls://127.0.0.1:")
        millrace.environment["SSL_CERT_FILE"] = str(directory / "ca.pem")
        millrace.servers = with_tls
        assert millrace.process("topic", "create", "t").returncode == 0
        assert millrace.process("produce", "t", stdin=b"a\nb\n").returncode == 0
        session = millrace.process("nc", with_tls, stdin=b"metadata\n")
        assert session.returncode == 0
        assert b"Metadata response" in session.stdout
        millrace.servers = plain
        assert millrace.process("consume", "t").stdout == b"a\nb\n"
        assert serving.stop()[0] == 0


def test_certificates_that_are_there_stay_and_new_clients_get_theirs(
    millrace: Millrace, tmp_path: Path
) -> None:
    command = ("tls", "make-dev-certs", str(tmp_path), "--client")
    assert millrace(*command, "one").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    added = millrace(*command, "two")
    assert added.stdout.splitlines() == [str(tmp_path / "client-two.pem")]
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 65])
def test_a_name_that_is_no_file_is_refused(millrace: Millrace, name: str, tmp_path: Path) -> None:
    made = millrace("tls", "make-dev-certs", str(tmp_path / "new"), "--client", name)
    assert made.exit_code == Exit.USAGE
    assert not (tmp_path / "new").exists()


def test_half_an_authority_is_refused(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    made = millrace("tls", "make-dev-certs", str(tmp_path))
    assert made.exit_code != 0
    assert "has only one of ca.pem and ca-key.pem; take another directory" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ca.pem"]


def test_a_directory_that_is_a_file_is_named(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = millrace("tls", "make-dev-certs", str(tmp_path / "file"))
    assert made.exit_code != 0
    assert str(tmp_path / "file") in made.stderr


def test_a_broker_does_not_start_with_files_that_cannot_be_used(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path / "data"), "--listen", "tls://127.0.0.1:0"]
    done = subprocess.run(
        [*COMMAND, "serve", *flags, "--tls-certificate", str(tmp_path / "missing.pem")],
        capture_output=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == Exit.USAGE
    assert b"tls_certificate: " in done.stderr
    assert b"missing.pem cannot be read: No such file or directory" in done.stderr


def test_a_broker_whose_certificate_others_would_refuse_does_not_start(
    millrace: Millrace, tmp_path: Path
) -> None:
    directory = tmp_path / "certificates"
    millrace("tls", "make-dev-certs", str(directory), "--host", "broker-1.example")
    toml = tmp_path / "millrace.toml"
    toml.write_text(
        f"""
        data = "{tmp_path / "data"}"
        node_id = 1
        quorum = "1@127.0.0.1:9095"
        broker_tls_certificate = "{directory / "broker.pem"}"
        broker_tls_ca = "{directory / "ca.pem"}"
        """
    )
    done = subprocess.run(
        [*COMMAND, "serve", "--config", str(toml)], capture_output=True, timeout=HANG_TIMEOUT_S
    )
    assert done.returncode == Exit.USAGE
    assert b"broker_tls_certificate: " in done.stderr
    assert b"would be refused by a broker that dials 127.0.0.1 " in done.stderr
    assert b"IP address mismatch" in done.stderr
