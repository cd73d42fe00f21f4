"""The keys with which tokens are checked: a set of JSON web keys, in a file or at an address.

Owns when they are read again, one read at a time, in a worker thread. A token whose key is known
does not wait for it. Where keys cannot be read, those of the last time stay. Which key checks a
token is `authentication.key_set`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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
from millrace_server.environment.seams import Spawn
from millrace_server.file_stamp import FileStamp
from millrace_server.logs import LogRateLimiter, MonotonicClock, get_logger
from millrace_server.net.web_document import DocumentError, fetch_document

log = get_logger("millrace.authentication")
KEYS_BYTES_MAX = 1 << 20
FETCH_MS = 10_000
REFRESH_MS = 60 * 60 * 1000
"""Kafka's `sasl.oauthbearer.jwks.endpoint.refresh.ms`."""
RETRY_MS = 10_000
"""An address is asked so soon again for a key that is not known, and where it has failed."""
FILE_CHECK_MS = 1_000
"""A file is looked at so soon again, to see whether it has changed."""


class TokenKeysError(Exception):
    """The keys cannot be read; the message says why."""


class TokenKeys:
    """The keys of one source, for one event loop.

    Raises `TokenKeysError` where they cannot be read from a file; an address is asked for the first
    token.
    """

    def __init__(self, source: str, *, clock: MonotonicClock, spawn: Spawn) -> None:
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
        self._spawn = spawn
        self._failures = LogRateLimiter(clock, lines=1)
        is_file = "://" not in source
        self._read: Callable[[], KeySet | None] = self._file if is_file else self._document
        self._refresh_ms = FILE_CHECK_MS if is_file else REFRESH_MS
        self._retry_ms = FILE_CHECK_MS if is_file else RETRY_MS
        self._seen: FileStamp | None = None
        """Of the file whose keys these are."""
        self._keys: KeySet | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._tried_ms: int | None = None
        """When the last read ended."""
        self._has_failed = False
        if is_file:
            self._keys = self._file()
            self._tried_ms = clock.monotonic_ms()

    async def check_of(self, token: str) -> Callable[[], Mapping[str, Any]]:
        """See `seams.TokenKeys`."""
        header = header_of(token)
        key = await self._key(header)
        return partial(claims_of, token, key, header.algorithm)

    def reread(self) -> None:
        """Begins to read the keys again, unless that is going on."""
        if self._refreshing is None:
            self._refreshing = self._spawn.task(self._refresh(), name="token-keys")

    async def _key(self, header: TokenHeader) -> IssuerKey:
        key = self._known(header)
        if self._is_due(key):
            self.reread()
        if self._refreshing is not None and (key is None or self._are_old()):
            await asyncio.shield(self._refreshing)
            key = self._known(header)
        if key is not None:
            return key
        if self._keys is None:
            raise TokenRefused("there are no keys of the issuer yet")
        if header.key_name is None:
            raise TokenRefused("it names no key (kid), and none of the issuer signs as it says")
        raise TokenRefused(f"no key of the issuer is named {quoted(header.key_name)}")

    def _known(self, header: TokenHeader) -> IssuerKey | None:
        return None if self._keys is None else self._keys.find(header)

    def _is_due(self, key: IssuerKey | None) -> bool:
        is_enough = key is not None and not self._has_failed
        return self._age_ms() >= (self._refresh_ms if is_enough else self._retry_ms)

    def _are_old(self) -> bool:
        """Whether no token has come for so long that the issuer may have taken a key back."""
        return self._age_ms() >= 2 * self._refresh_ms

    def _age_ms(self) -> float:
        if self._tried_ms is None:
            return float("inf")
        return self._clock.monotonic_ms() - self._tried_ms

    async def _refresh(self) -> None:
        try:
            keys = await self._spawn.blocking(self._read)
        except TokenKeysError as error:
            self._has_failed = True
            if self._failures.take() is not None:
                log.error("keys of tokens not read, those before stay", reason=str(error))
        else:
            self._has_failed = False
            if keys is not None:
                self._keys = keys
                log.info("keys of tokens read", source=self._source)
        finally:
            self._tried_ms = self._clock.monotonic_ms()
            self._refreshing = None

    def _file(self) -> KeySet | None:
        """The keys of the file; None where it is the one of the last time."""
        path = Path(self._source)
        try:
            stamp = FileStamp.of(path)
            if stamp == self._seen:
                return None
            with path.open("rb") as file:
                contents = file.read(KEYS_BYTES_MAX + 1)
        except OSError as error:
            raise TokenKeysError(f"{path} cannot be read: {error.strerror}") from None
        if len(contents) > KEYS_BYTES_MAX:
            raise TokenKeysError(f"{path} has more than {KEYS_BYTES_MAX} bytes")
        keys = self._parsed(contents)
        self._seen = stamp
        return keys

    def _document(self) -> KeySet:
        try:
            contents = fetch_document(
                self._source, bytes_max=KEYS_BYTES_MAX, time_ms=FETCH_MS, clock=self._clock
            )
        except DocumentError as error:
            raise TokenKeysError(f"{self._source} {error}") from None
        return self._parsed(contents)

    def _parsed(self, contents: bytes) -> KeySet:
        try:
            return parse_key_set(contents.decode())
        except UnicodeDecodeError:
            raise TokenKeysError(f"{self._source} has no set of keys: it is not UTF-8") from None
        except KeySetError as error:
            raise TokenKeysError(f"{self._source} {error}") from None
