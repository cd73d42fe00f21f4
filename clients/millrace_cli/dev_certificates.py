"""Certificates for development and tests: an authority of its own, brokers and clients.

Owns the names of the files. A production certificate comes from the operator's own authority.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

import trustme

from millrace_cli.exits import CommandError

CA, CA_KEY, BROKER = "ca.pem", "ca-key.pem", "broker.pem"
_KEY_MODE = 0o600
_ORGANIZATION, _UNIT = "millrace", "development"


def make_certificates(
    directory: Path, *, hosts: Sequence[str], clients: Sequence[str], days: int
) -> list[Path]:
    """Writes an authority, a certificate of a broker with these host names and addresses, and one
    for each client; returns the new files. Certificate and key share a file.

    A directory that has an authority keeps it, and the certificates that it has. Raises
    `CommandError`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        made: list[Path] = []
        authority = _authority(directory, made)
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        if not (directory / BROKER).exists():
            _issue(authority, directory / BROKER, hosts[0], hosts, until, made)
        for client in clients:
            path = directory / f"client-{client}.pem"
            if not path.exists():
                # Java reads no certificate whose list of names is empty.
                _issue(authority, path, client, [f"{client}@localhost"], until, made)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    return made


def _authority(directory: Path, made: list[Path]) -> trustme.CA:
    certificate, key = directory / CA, directory / CA_KEY
    if certificate.exists() and key.exists():
        try:
            return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
        except ValueError as error:
            raise CommandError(f"{certificate}, {key}: no authority: {error}") from error
    if certificate.exists() or key.exists():
        raise CommandError(f"{directory} has only one of {CA} and {CA_KEY}; take another directory")
    authority = trustme.CA(organization_name=_ORGANIZATION, organization_unit_name=_UNIT)
    certificate.write_bytes(authority.cert_pem.bytes())
    made.append(certificate)
    _write_key(key, authority.private_key_pem, made)
    return authority


def _issue(
    authority: trustme.CA,
    path: Path,
    name: str,
    hosts: Sequence[str],
    until: datetime.datetime,
    made: list[Path],
) -> None:
    certificate = authority.issue_cert(
        *hosts,
        common_name=name,
        organization_name=_ORGANIZATION,
        organization_unit_name=_UNIT,
        not_after=until,
    )
    _write_key(path, certificate.private_key_and_cert_chain_pem, made)


def _write_key(path: Path, blob: trustme.Blob, made: list[Path]) -> None:
    """Writes a file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _KEY_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(blob.bytes())
    made.append(path)
