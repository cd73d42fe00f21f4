"""The keys with which tokens are checked: a set of JSON web keys, in a file or at an address.

Owns when they are read again. What reads them blocks, so it runs in worker threads; where they
cannot be read, those of the last time stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from millrace_server.api_error import quoted
from millrace_server.authentication.key_set import (
    IssuerKey,
    KeySet,
    KeySetError,
    TokenHeader,
    claims_of,
    header_of,
    parse_key_set,
)
from millrace_server.authentication.oauthbearer import TokenRefused
from millrace_server.logs import LogRateLimiter, MonotonicClock, get_logger
from millrace_server.net.web_document import DocumentError, fetch_document

log = get_logger("millrace.authentication")
KEYS_BYTES_MAX = 1 << 20
FETCH_MS = 10_000
REFRESH_MS = 60 * 60 * 1000
"""Kafka's `sasl.oauthbearer.jwks.endpoint.refresh.ms`."""
UNKNOWN_KEY_REFRESH_MS = 10_000
"""A token with a key that is not known has them read again, as often as this at most."""


class TokenKeysError(Exception):
    """The keys cannot be read; the message says why."""


class _Read(NamedTuple):
    keys: KeySet
    at_ms: int


class TokenKeys:
    """The keys of one source. Raises `TokenKeysError` where they cannot be read from a file."""

    def __init__(self, source: str, *, clock: MonotonicClock) -> None:
        try:
            import cryptography
            import jwt
        except ImportError:
            raise TokenKeysError(
                "OAUTHBEARER needs a library: pip install 'millrace[oauth]'"
            ) from None
        _ = cryptography, jwt
        self._source = source
        self._clock = clock
        self._lock = Lock()
        self._failures = LogRateLimiter(clock, lines=1)
        self._last: _Read | None = None
        if "://" not in source:
            self._last = self._read()

    def claims(self, token: str) -> Mapping[str, Any]:
        """What a token says, when its signature is right. Raises `TokenRefused`. Blocks."""
        header = header_of(token)
        return claims_of(token, self._key(header), header.algorithm)

    def _key(self, header: TokenHeader) -> IssuerKey:
        with self._lock:
            last = self._last
            known = None if last is None else last.keys.find(header)
            key = self._current(has_key=known is not None).find(header)
            if key is None:
                raise TokenRefused(f"no key of the issuer is named {quoted(str(header.key_name))}")
            return key

    def _current(self, *, has_key: bool) -> KeySet:
        last, now_ms = self._last, self._clock.monotonic_ms()
        age_ms = None if last is None else now_ms - last.at_ms
        if age_ms is not None and age_ms < (REFRESH_MS if has_key else UNKNOWN_KEY_REFRESH_MS):
            assert last is not None
            return last.keys
        try:
            self._last = last = self._read()
        except TokenKeysError as error:
            if self._failures.take() is not None:
                log.error("keys of tokens not read again", reason=str(error))
            if last is None:
                raise TokenRefused("there are no keys of the issuer") from None
            # Not again at once.
            self._last = last = last._replace(at_ms=now_ms)
        return last.keys

    def _read(self) -> _Read:
        try:
            keys = parse_key_set(self._contents().decode())
        except (KeySetError, DocumentError) as error:
            raise TokenKeysError(f"{self._source} {error}") from None
        except OSError as error:
            raise TokenKeysError(f"{self._source} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenKeysError(f"{self._source} has no set of keys: it is not UTF-8") from None
        return _Read(keys, self._clock.monotonic_ms())

    def _contents(self) -> bytes:
        if "://" in self._source:
            return fetch_document(
                self._source, bytes_max=KEYS_BYTES_MAX, time_ms=FETCH_MS, clock=self._clock
            )
        with Path(self._source).open("rb") as file:
            contents = file.read(KEYS_BYTES_MAX + 1)
        if len(contents) > KEYS_BYTES_MAX:
            raise DocumentError(f"has more than {KEYS_BYTES_MAX} bytes")
        return contents
