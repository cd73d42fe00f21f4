"""Authentication: who a client is (KIP-43, KIP-152, KIP-368).

Owns the exchange of each connection, the delay of a refusal, and the lifetime of what was proved.
The mechanisms are `millrace_server.authentication`'s. A service asks the context who its client is;
this one alone sets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.scram import SCRAM_MECHANISMS
from millrace_server.api_error import ApiError, quoted
from millrace_server.authentication.exchange import (
    MESSAGE_BYTES_MAX,
    Accepted,
    Challenge,
    Exchange,
    SaslFailed,
)
from millrace_server.authentication.oauthbearer import (
    OAUTHBEARER,
    OauthBearerExchange,
    TokenRefused,
    TokenRules,
    user_of,
)
from millrace_server.authentication.plain import PLAIN, PlainExchange
from millrace_server.authentication.scram import ScramExchange
from millrace_server.authentication.user_credentials import UserCredentials
from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Environment
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.principal import ANONYMOUS, user_principal
from millrace_server.services.request_context import RequestContext
from millrace_server.statistics import Registry, metrics

log = get_logger("millrace.authentication")
SLOW_STEPS_MAX = 2
"""Steps at a time that run in worker threads, of which disks need most."""
_SECRET_BITS = 256
_NONCE_BITS = 192
T = TypeVar("T")
_SUCCESS, _FAILURE = "success", "failure"


@dataclass(frozen=True, slots=True)
class Progress:
    """The broker's message of a step. `session_lifetime_ms`: 0 for one without an end."""

    message: bytes
    is_complete: bool
    session_lifetime_ms: int = 0


class AuthenticationService:
    """The exchanges of all connections."""

    def __init__(
        self,
        env: Environment,
        cache: MetadataCache,
        statistics: Registry,
        config: BrokerConfig,
    ) -> None:
        self._env = env
        self._cache = cache
        self._statistics = statistics
        self._mechanisms = config.mechanisms
        self.reload(config)
        self._slow_steps = asyncio.Semaphore(SLOW_STEPS_MAX)
        self._refused = LogRateLimiter(env.clock)
        self._secret = self._random_bytes()
        """Until the cluster has one, with its first user."""
        for mechanism in (*SCRAM_MECHANISMS, PLAIN, OAUTHBEARER):
            for result in (_SUCCESS, _FAILURE):
                statistics.counter(metrics.AUTHENTICATIONS, mechanism, result)

    def reload(self, config: BrokerConfig) -> None:
        """Takes over the settings that reload: for clients that authenticate from now on."""
        self._token_rules = TokenRules(
            config.sasl_oauthbearer_expected_audience,
            config.sasl_oauthbearer_expected_issuer,
            config.sasl_oauthbearer_sub_claim_name,
        )
        self._reauthentication_ms = config.connections_max_reauth_ms
        self._failure_delay_ms = config.failed_authentication_delay_ms

    def mechanisms_of(self, context: RequestContext) -> tuple[str, ...]:
        """The mechanisms that a connection may use; none where its listener has no SASL."""
        if context.sasl is None:
            return ()
        return tuple(
            each for each in self._mechanisms if context.sasl.has_tls or each in SCRAM_MECHANISMS
        )

    def check_may_request(self, context: RequestContext) -> None:
        """Raises `ApiError` where a client must authenticate first, or again; the connection ends.

        For every request but those that authenticate, and those that come before.
        """
        sasl = context.sasl
        if sasl is None:
            return
        if not context.is_authenticated:
            sasl.is_refused = True
            raise ApiError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"The client has not authenticated; listener {context.listener!r} asks for it "
                f"first, with {' or '.join(self.mechanisms_of(context))}",
            )
        if sasl.session_end_ms is not None and self._now_ms() >= sasl.session_end_ms:
            sasl.is_refused = True
            raise ApiError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "The session of the client has ended; authenticate again before its end",
            )

    @contextmanager
    def session_timer(self, context: RequestContext, call: Callable[[], None]) -> Iterator[None]:
        """Calls `call` at about the end of the session, unless the context is left before.

        For an answer without an end, of which a client that has to go must learn.
        """
        end_ms = None if context.sasl is None else context.sasl.session_end_ms
        if end_ms is None:
            yield
            return
        # Up to 1 ms late rather than early, which would call once more.
        left_ms = max(0, end_ms - self._now_ms()) + 1
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, call)
        try:
            yield
        finally:
            timer.cancel()

    def begin(self, context: RequestContext, mechanism: str) -> None:
        """Begins an exchange. Raises `ApiError`, after which most connections end."""
        sasl = context.sasl
        if sasl is None or (context.is_authenticated and sasl.session_end_ms is None):
            raise ApiError(
                ErrorCode.ILLEGAL_SASL_STATE,
                f"Listener {context.listener!r} has no SASL"
                if sasl is None
                else "The client has authenticated already, and its session has no end",
            )
        if sasl.exchange is not None:
            sasl.is_refused = True
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "An exchange of SASL is in progress")
        known = self.mechanisms_of(context)
        if mechanism not in known:
            sasl.is_refused = True
            hint = "" if sasl.has_tls or mechanism not in self._mechanisms else ", which needs TLS"
            raise ApiError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"Listener {context.listener!r} has no SASL mechanism {quoted(mechanism)}{hint}; "
                f"it has {', '.join(known)}",
            )
        sasl.exchange = self._exchange(mechanism)

    async def advance(self, context: RequestContext, message: bytes) -> Progress:
        """Takes the next message of a client. Raises `ApiError`, after which the connection ends:
        where the client has failed, after the delay that makes guessing slow."""
        sasl = context.sasl
        exchange = None if sasl is None else sasl.exchange
        if sasl is None or exchange is None or sasl.is_busy or sasl.is_refused:
            if sasl is not None:
                sasl.is_refused = True
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "No exchange of SASL waits for a message")
        sasl.is_busy = True
        try:
            step = await self._step(exchange, message)
            if isinstance(step, Challenge):
                return Progress(step.message, is_complete=False)
            return self._accept(context, exchange, step)
        except SaslFailed as failed:
            sasl.is_refused = True
            await self._note_failed(context, exchange, failed)
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)) from None
        finally:
            sasl.is_busy = False

    async def authenticate(
        self, context: RequestContext, mechanism: str, message: bytes
    ) -> Progress:
        """The same where every message names the mechanism: the first one begins the exchange."""
        sasl = context.sasl
        if sasl is None or sasl.exchange is None:
            self.begin(context, mechanism)
        elif sasl.exchange.mechanism != mechanism:
            sasl.is_refused = True
            raise ApiError(
                ErrorCode.ILLEGAL_SASL_STATE,
                f"An exchange of {sasl.exchange.mechanism} is in progress",
            )
        return await self.advance(context, message)

    def _exchange(self, mechanism: str) -> Exchange:
        image = self._cache.image
        credentials = UserCredentials(image.users, image.scram_secret or self._secret)
        if mechanism == PLAIN:
            return PlainExchange(credentials.any_of)
        if mechanism == OAUTHBEARER:
            return OauthBearerExchange(self._check_token)
        scram = SCRAM_MECHANISMS[mechanism]
        nonce = f"{self._env.rng.getrandbits(_NONCE_BITS):048x}"
        return ScramExchange(scram, lambda user: credentials.of(scram, user), nonce)

    async def _check_token(self, token: str) -> Accepted:
        """Raises `TokenRefused`."""
        keys = self._env.token_keys
        if keys is None:
            raise TokenRefused("the broker has no keys of an issuer")
        claims = await self._in_thread(await keys.check_of(token))
        user, expires_ms = user_of(claims, self._token_rules, self._env.clock.wall_ms())
        return Accepted(user, expires_ms=expires_ms)

    async def _step(self, exchange: Exchange, message: bytes) -> Challenge | Accepted:
        if len(message) > MESSAGE_BYTES_MAX:
            raise SaslFailed(f"A message of SASL has at most {MESSAGE_BYTES_MAX} bytes")
        step = exchange.step(message)
        if isinstance(step, Challenge | Accepted):
            return step
        if isinstance(step, Coroutine):
            return await step
        return await self._in_thread(step)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._slow_steps:
            return await self._env.spawn.blocking(work)

    def _accept(self, context: RequestContext, exchange: Exchange, accepted: Accepted) -> Progress:
        sasl = context.sasl
        assert sasl is not None
        principal = user_principal(accepted.user)
        if principal == ANONYMOUS:
            raise SaslFailed("The name is that of clients without one", user=accepted.user)
        if context.is_authenticated and principal != context.principal:
            raise SaslFailed(
                f"The connection is of {context.principal}, and stays so when it authenticates "
                "again",
                user=accepted.user,
            )
        lifetime_ms = self._lifetime_ms(accepted)
        if lifetime_ms is not None and lifetime_ms <= 0:
            raise SaslFailed("What the client has shown is out of date", user=accepted.user)
        sasl.exchange = None
        sasl.session_end_ms = None if lifetime_ms is None else self._now_ms() + lifetime_ms
        try:
            context.authenticate(principal)
        except ApiError:
            sasl.is_refused = True
            raise
        self._count(exchange, _SUCCESS)
        return Progress(accepted.message, is_complete=True, session_lifetime_ms=lifetime_ms or 0)

    def _lifetime_ms(self, accepted: Accepted) -> int | None:
        """How long the client may stay without authenticating again; None for always."""
        bounds = []
        if self._reauthentication_ms:
            bounds.append(self._reauthentication_ms)
        if accepted.expires_ms is not None:
            bounds.append(accepted.expires_ms - self._env.clock.wall_ms())
        return min(bounds, default=None)

    async def _note_failed(
        self, context: RequestContext, exchange: Exchange, failed: SaslFailed
    ) -> None:
        self._count(exchange, _FAILURE)
        if (suppressed := self._refused.take()) is not None:
            log.warning(
                "authentication failed",
                peer=context.client_host,
                listener=context.listener,
                mechanism=exchange.mechanism,
                user=failed.user,
                reason=failed.detail or str(failed),
                suppressed=suppressed,
            )
        await asyncio.sleep(self._failure_delay_ms / 1000)

    def _count(self, exchange: Exchange, result: str) -> None:
        self._statistics.counter(metrics.AUTHENTICATIONS, exchange.mechanism, result).value += 1

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ms()

    def _random_bytes(self) -> bytes:
        return self._env.rng.getrandbits(_SECRET_BITS).to_bytes(_SECRET_BITS // 8, "big")
