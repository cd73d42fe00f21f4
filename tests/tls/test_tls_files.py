"""Certificates that are renewed while the broker runs, and files that cannot be used."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace_server.net.tls import CHECK_S, BrokerTlsFiles, TlsFiles, TlsFilesError
from tests.tls.conftest import Certificates


class SetClock:
    """A clock that a test sets."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


def fingerprint(context: ssl.SSLContext, ca: str) -> bytes:
    """The certificate that a server shows, after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    trusting = ssl.create_default_context(cafile=ca)
    trusting.check_hostname = False
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


@pytest.fixture
def files(tmp_path: Path, certificates: Certificates) -> Path:
    """A copy of the broker's file, to be replaced."""
    return Path(shutil.copy(certificates.broker, tmp_path / "broker.pem"))


def test_a_renewed_certificate_is_shown_to_the_next_client(
    files: Path, certificates: Certificates
) -> None:
    clock = SetClock()
    used = TlsFiles(str(files), clock=clock)
    before = used.context()
    shown = fingerprint(before, certificates.ca)
    shutil.copy(certificates.other_host, files)
    assert used.context() is before, "the files are not looked at for every connection"
    clock.now_ms += int(CHECK_S * 1000)
    assert fingerprint(used.context(), certificates.ca) != shown
    assert fingerprint(before, certificates.ca) == shown, "a connection that is open stays"


def write_nothing(path: Path, certificates: Certificates) -> None:
    path.write_bytes(b"")


def remove(path: Path, certificates: Certificates) -> None:
    path.unlink()


def copy_a_key_alone(path: Path, certificates: Certificates) -> None:
    shutil.copy(Path(certificates.ca).with_name("ca-key.pem"), path)


@pytest.mark.parametrize("spoil", [write_nothing, remove, copy_a_key_alone])
def test_files_that_cannot_be_used_leave_those_before_in_force(
    files: Path, certificates: Certificates, spoil: Callable[[Path, Certificates], None]
) -> None:
    clock = SetClock()
    used = TlsFiles(str(files), clock=clock)
    before = used.context()
    spoil(files, certificates)
    clock.now_ms += int(CHECK_S * 1000)
    assert used.context() is before
    shutil.copy(certificates.other_host, files)
    clock.now_ms += int(CHECK_S * 1000)
    assert used.context() is not before


@pytest.mark.parametrize(
    ("name", "field", "why"),
    [
        ("certificate", "/no/such/file", "tls_certificate: /no/such/file cannot be read: No such"),
        ("certificate", __file__, "is no PEM file of what is needed"),
        ("key", "/no/such/file", "tls_key: /no/such/file cannot be read: No such"),
        ("key", "client", "client-loader.pem is not the key of the certificate"),
        ("ca", "/no/such/file", "tls_client_ca: /no/such/file cannot be read: No such"),
        ("ca", __file__, "tls_client_ca: .* is no PEM file of what is needed"),
    ],
)
def test_a_start_says_which_file_cannot_be_used(
    certificates: Certificates, name: str, field: str, why: str
) -> None:
    path = getattr(certificates, field, field)
    given = {"certificate": certificates.broker, name: path}
    with pytest.raises(TlsFilesError, match=why):
        TlsFiles(**given, clock=SetClock())


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = Path(certificates.broker).read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    path = tmp_path / "key.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(TlsFilesError, match=r"key.pem is encrypted.*decrypt it"):
        TlsFiles(certificates.broker, str(path), clock=SetClock())


def broker_files(certificate: str, ca: str, clock: SetClock | None = None) -> BrokerTlsFiles:
    return BrokerTlsFiles(certificate, "", ca, host="localhost", clock=clock or SetClock())


@pytest.mark.parametrize(
    ("certificate", "ca", "why"),
    [
        ("/no/such/file", "ca", "broker_tls_certificate: /no/such/file cannot be read: No such"),
        ("broker", __file__, "broker_tls_ca: .* is no PEM file of what is needed"),
        ("broker", "other_ca", "its certificate is refused: unable to get local issuer"),
        ("other_host", "ca", "a broker that dials localhost .* Hostname mismatch"),
    ],
)
def test_a_broker_finds_out_itself_that_others_would_refuse_it(
    certificates: Certificates, certificate: str, ca: str, why: str
) -> None:
    path, ca_path = (getattr(certificates, each, each) for each in (certificate, ca))
    with pytest.raises(TlsFilesError, match=why):
        broker_files(path, ca_path)


def test_a_certificate_that_others_would_refuse_leaves_the_one_before_in_force(
    files: Path, certificates: Certificates
) -> None:
    clock = SetClock()
    used = broker_files(str(files), certificates.ca, clock)
    before = used.context(), used.dialing_context()
    shutil.copy(certificates.other_host, files)
    clock.now_ms += int(CHECK_S * 1000)
    assert (used.context(), used.dialing_context()) == before
    shutil.copy(certificates.broker, files)
    clock.now_ms += int(CHECK_S * 1000)
    assert used.dialing_context() is not before[1]
    assert used.context() is not before[0]
