"""How a client proves who it is to each broker that it connects to.

Owns the exchange of SASL on one connection, and the choice of its mechanism.
"""

from __future__ import annotations

import inspect
import random

from millrace._cluster.scram_client import SaltedPasswords, ScramClient
from millrace.config import OAUTHBEARER, PLAIN, ClientConfig
from millrace.errors import AuthenticationFailed, ConfigError
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse
from millrace_protocol.scram import SCRAM_MECHANISMS, ScramError, ScramMechanism
from millrace_wire.connection import Connection

_NONCE_BITS = 192


class Login:
    """The user of a client; the same for all its connections. See `login_of`."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._mechanism = config.mechanism
        self._salted: SaltedPasswords = {}
        # Whoever guesses a nonce could let a broker's old answer pass for a new one.
        self._rng = random.SystemRandom()  # noqa: TID251

    async def authenticate(self, connection: Connection, *, timeout_ms: int) -> int:
        """Authenticates on a connection; returns for how many milliseconds, 0 for ever.

        Raises `AuthenticationFailed`, and what `Connection.call` raises.
        """
        exchange = _Exchange(connection, self._mechanism, timeout_ms)
        if self._mechanism == PLAIN:
            user, password = self._config.username, self._config.password
            last = await exchange.send(f"\0{user}\0{password}".encode())
        elif self._mechanism == OAUTHBEARER:
            token = await self._token()
            last = await exchange.send(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
            if not last.is_complete:
                # The broker says why, and refuses the token when the client has heard it.
                last = await exchange.send(b"\x01")
        else:
            last = await self._scram(exchange, SCRAM_MECHANISMS[self._mechanism])
        if not last.is_complete:
            raise _failed(f"{connection} asks for more than {self._mechanism} has")
        return last.session_lifetime_ms

    async def _scram(self, exchange: _Exchange, mechanism: ScramMechanism) -> AuthenticateResponse:
        scram = ScramClient(
            mechanism,
            self._config.username,
            self._config.password,
            nonce=f"{self._rng.getrandbits(_NONCE_BITS):048x}",
            salted=self._salted,
        )
        try:
            answer = await exchange.send(scram.first())
            last = await exchange.send(scram.final(answer.auth_bytes))
            scram.check(last.auth_bytes)
        except ScramError as error:
            raise _failed(
                f"{exchange.connection} does not answer as {self._mechanism} asks for: {error}"
            ) from None
        return last

    async def _token(self) -> str:
        source = self._config.token
        token: object = source() if callable(source) else source
        if inspect.isawaitable(token):
            token = await token
        if not isinstance(token, str) or not token:
            raise ConfigError("token: must be a string that is not empty, or return one")
        return token


def login_of(config: ClientConfig, *, has_tls: bool) -> Login | None:
    """The login of a client's settings; None without one. Raises `ConfigError`."""
    if not config.mechanism:
        return None
    if config.mechanism in (PLAIN, OAUTHBEARER) and not has_tls:
        what = "token" if config.mechanism == OAUTHBEARER else "password"
        raise ConfigError(
            f"sasl_mechanism: {config.mechanism} sends the {what} as it is, and needs TLS; put "
            "tls:// before the address, or set tls=True"
        )
    return Login(config)


class _Exchange:
    def __init__(self, connection: Connection, mechanism: str, timeout_ms: int) -> None:
        self.connection = connection
        self._mechanism = mechanism
        self._timeout_ms = timeout_ms

    async def send(self, message: bytes) -> AuthenticateResponse:
        request = AuthenticateRequest(self._mechanism, message)
        return await self.connection.call(
            request, AuthenticateResponse, timeout_ms=self._timeout_ms
        )


def _failed(sentence: str) -> AuthenticationFailed:
    return AuthenticationFailed(sentence, code=ErrorCode.SASL_AUTHENTICATION_FAILED)
