"""TLS for listeners: the context of new connections, from files that may change.

Owns the files of certificate, key and authorities. A certificate that is renewed in place serves
the next connection, and those that are open stay. Files that cannot be used leave the ones before
them in force.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from millrace_server.logs import LogRateLimiter, MonotonicClock, get_logger
from millrace_server.principal import ANONYMOUS, certificate_principal

log = get_logger("millrace.tls")
CHECK_S = 1.0
"""The files are looked at for the next connection after so long."""


class TlsFilesError(Exception):
    """The files of certificate, key or authorities cannot be used; the message says which."""


class TlsFiles:
    """Certificate, key and authorities of a broker's listeners.

    `client_ca` makes a listener demand a certificate of each client. Raises `TlsFilesError`.
    """

    def __init__(
        self, certificate: str, key: str = "", client_ca: str = "", *, clock: MonotonicClock
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._clock = clock
        self._refused = LogRateLimiter(clock)
        self._failures = LogRateLimiter(clock, lines=1)
        self._checked_ms = clock.monotonic_ms()
        self._seen = self._stamps()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_S * 1000:
            self._checked_ms = now_ms
            self.reload_changed()
        return self._context

    def note_failed(self, error: OSError) -> None:
        """Logs why a handshake has failed, as often as peers may make a line."""
        if (suppressed := self._refused.take()) is not None:
            reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
            log.warning("TLS handshake failed", reason=reason, suppressed=suppressed)

    def reload_changed(self) -> None:
        """Reads the files again if one of them has changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            self._context = self._read()
        except TlsFilesError as error:
            # Perhaps only one of two files is new yet: they are looked at again.
            if self._failures.take() is not None:
                log.error("TLS files not read again, the ones before stay", reason=str(error))
            return
        self._seen = stamps
        log.info("TLS files read again", certificate=self._certificate)

    def _stamps(self) -> Sequence[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self._certificate, self._key, self._client_ca) if path]

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        where = "tls_certificate", self._certificate
        try:
            if self._key:
                where = "tls_key", self._key
                _check_readable(self._certificate, "tls_certificate")
            context.load_cert_chain(self._certificate, self._key or None, _no_password)
            if self._client_ca:
                where = "tls_client_ca", self._client_ca
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            name, path = where
            raise TlsFilesError(f"{name}: {path} {_reason(error)}") from error
        return context


def principal_of(transport: asyncio.Transport) -> str:
    """The principal of a peer: the subject of its certificate, if it has shown one."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ANONYMOUS
    return certificate_principal(certificate["subject"])


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


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
