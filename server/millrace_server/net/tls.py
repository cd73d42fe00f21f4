"""TLS of a broker: the context of new connections, from files that may change.

Owns the files of certificate, key and authorities, for clients and for other brokers. A certificate
that is renewed in place serves the next connection, and those that are open stay. Files that cannot
be used leave the ones before them in force.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NoReturn

from millrace_server.file_stamp import FileStamp
from millrace_server.logs import LogRateLimiter, MonotonicClock, get_logger
from millrace_server.principal import ANONYMOUS, certificate_principal
from millrace_wire.tls_failure import tls_failure

log = get_logger("millrace.tls")
CHECK_S = 1.0
"""The files are looked at for the next connection after so long."""


class TlsFilesError(Exception):
    """The files of certificate, key or authorities cannot be used; the message says which."""


class TlsFiles:
    """Certificate, key and authorities of a broker's listeners for clients.

    `ca` makes a listener demand a certificate of each peer. Raises `TlsFilesError`.
    """

    _peers: ClassVar = "clients"
    _settings: ClassVar = ("tls_certificate", "tls_key", "tls_client_ca")
    """The names of the settings that name the files."""

    def __init__(
        self, certificate: str, key: str = "", ca: str = "", *, clock: MonotonicClock
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._ca = ca
        self._clock = clock
        self._refused = LogRateLimiter(clock)
        self._failures = LogRateLimiter(clock, lines=1)
        self._checked_ms = clock.monotonic_ms()
        self._seen = self._stamps()
        self._context: ssl.SSLContext
        self._read()

    def context(self) -> ssl.SSLContext:
        """For the next connection that a peer makes."""
        self._look()
        return self._context

    def reread(self) -> None:
        """Reads the files again if one of them has changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            self._read()
        except TlsFilesError as error:
            # Perhaps only one of two files is new yet: they are looked at again.
            if self._failures.take() is not None:
                log.error("TLS files not read again, the ones before stay", reason=str(error))
            return
        self._seen = stamps
        log.info("TLS files read again", certificate=self._certificate)

    def note_failed(self, error: OSError, peer: str) -> None:
        """Logs why the handshake of a peer has failed, as often as peers may make a line."""
        if (suppressed := self._refused.take()) is not None:
            log.warning(
                "TLS handshake failed",
                listener=self._peers,
                peer=peer,
                reason=self._reason(error),
                suppressed=suppressed,
            )

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_S * 1000:
            self._checked_ms = now_ms
            self.reread()

    def _stamps(self) -> Sequence[FileStamp | None]:
        return [_stamp(path) for path in (self._certificate, self._key, self._ca) if path]

    def _read(self) -> None:
        """Sets the context. Raises `TlsFilesError`; nothing is changed then."""
        self._context = self._loaded(ssl.PROTOCOL_TLS_SERVER)

    def _reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLError):
            return tls_failure(error)
        return error.strerror or str(error) or "it closed the connection"

    def _loaded(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate_name, key_name, ca_name = self._settings
        where = certificate_name, self._certificate
        try:
            if self._key:
                where = key_name, self._key
                _check_readable(self._certificate, certificate_name)
            context.load_cert_chain(self._certificate, self._key or None, _no_password)
            if self._ca:
                where = ca_name, self._ca
                context.load_verify_locations(self._ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            name, path = where
            raise TlsFilesError(f"{name}: {path} {_reason(error)}") from error
        return context


class BrokerTlsFiles(TlsFiles):
    """Those for connections between brokers: each side shows its certificate and checks the other.

    A broker that dials checks the host too, and `host` is the one at which others dial this broker.
    """

    _peers = "brokers"
    _settings = ("broker_tls_certificate", "broker_tls_key", "broker_tls_ca")

    def __init__(
        self, certificate: str, key: str, ca: str, *, host: str, clock: MonotonicClock
    ) -> None:
        self._host = host
        self._dialing: ssl.SSLContext
        super().__init__(certificate, key, ca, clock=clock)

    def dialing_context(self) -> ssl.SSLContext:
        """For the next connection to another broker."""
        self._look()
        return self._dialing

    def _read(self) -> None:
        listening, dialing = map(self._loaded, (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
        try:
            _shake_hands(listening, dialing, self._host)
        except ssl.SSLError as error:
            raise TlsFilesError(
                f"broker_tls_certificate: {self._certificate} would be refused by a broker that "
                f"dials {self._host} and trusts the broker_tls_ca {self._ca}: {tls_failure(error)}"
            ) from error
        self._context, self._dialing = listening, dialing

    def _reason(self, error: OSError) -> str:
        reason = super()._reason(error)
        if isinstance(error, ssl.SSLError):
            reason += "; a broker needs a certificate of the authorities in broker_tls_ca"
        return reason


def _shake_hands(listening: ssl.SSLContext, dialing: ssl.SSLContext, host: str) -> None:
    """A handshake in memory. Raises `SSLError`."""
    to_listening, to_dialing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listening.wrap_bio(to_listening, to_dialing, server_side=True)
    client = dialing.wrap_bio(to_dialing, to_listening, server_hostname=host)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def principal_of(transport: asyncio.Transport) -> str:
    """The principal of a peer: the subject of its certificate, if it has shown one."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ANONYMOUS
    return certificate_principal(certificate["subject"])


def _stamp(path: str) -> FileStamp | None:
    try:
        return FileStamp.of(path)
    except OSError:
        return None


def _check_readable(path: str, name: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsFilesError(f"{name}: {path} {_reason(error)}") from error


def _no_password() -> NoReturn:
    raise ValueError("is encrypted, and a broker has no password for it; decrypt it")


def _reason(error: OSError | ValueError) -> str:
    if not isinstance(error, ssl.SSLError):
        return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "is not the key of the certificate"
    return "is no PEM file of what is needed: certificates first, or a private key"
