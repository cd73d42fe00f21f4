"""OAUTHBEARER: a token that someone else has signed (RFC 7628, RFC 7519; KIP-255, KIP-768).

The broker checks the signature with a key of the issuer, and what the token says of itself. It asks
nobody about the user, so a token is as good as a user until it expires.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from millrace_server.api_error import quoted
from millrace_server.authentication.exchange import (
    Accepted,
    Challenge,
    SaslFailed,
    Step,
    Waiting,
)
from millrace_server.principal import is_user_name

OAUTHBEARER = "OAUTHBEARER"
SKEW_S = 30
"""How far the clock of the issuer may be off; Kafka's `sasl.oauthbearer.clock.skew.seconds`."""
TIME_S_MAX = 253_402_300_799
"""The end of the year 9999. A later time is one in milliseconds, or made to break something."""
_SEPARATOR = "\x01"


class TokenRefused(Exception):
    """The token proves nothing. The text is for the broker's log, not for the client."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say. An empty `audience` or `issuer` is not looked at."""

    audience: str
    issuer: str
    user_claim: str
    """The claim with the name of the user."""


def user_of(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> tuple[str, int]:
    """The user whom the claims of a token name, and until when (ms of the wall clock).

    Raises `TokenRefused`.
    """
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise TokenRefused("it does not say when it expires (exp)")
    now_s = now_ms / 1000
    if now_s >= expires_s + SKEW_S:
        raise TokenRefused(f"it has expired {now_s - expires_s:.0f} s ago")
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name)
        if begins_s is not None and now_s < begins_s - SKEW_S:
            raise TokenRefused(f"it begins in {begins_s - now_s:.0f} s ({name})")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused(f"its issuer is {_shown(claims.get('iss'))}")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audience and rules.audience not in audiences:
        raise TokenRefused(f"its audience is {', '.join(map(_shown, audiences[:3]))}")
    user = claims.get(rules.user_claim)
    if not (isinstance(user, str) and is_user_name(user)):
        raise TokenRefused(f"it names no user ({rules.user_claim})")
    return user, int((expires_s + SKEW_S) * 1000)


Check = Callable[[str], Coroutine[Any, Any, Accepted]]


class OauthBearerExchange:
    """One exchange. `check` verifies a token, and waits for keys. It raises `TokenRefused`."""

    mechanism = OAUTHBEARER

    def __init__(self, check: Check) -> None:
        self._check: Check | None = check
        self._refused: str | None = None
        """Why, once the token was refused."""

    def step(self, message: bytes) -> Waiting:
        """See `Exchange`: `n,,^Aauth=Bearer TOKEN^A^A`."""
        if self._refused is not None:
            # The client has acknowledged the failure, in whatever words.
            raise SaslFailed(
                f"Authentication failed with SASL mechanism {OAUTHBEARER}: the token is not valid",
                detail=f"the token is not valid: {self._refused}",
            )
        check, self._check = self._check, None
        if check is None:
            raise SaslFailed("The exchange of OAUTHBEARER has ended")
        authorized, token = _parse(message)
        return self._verify(check, authorized, token)

    async def _verify(self, check: Check, authorized: str, token: str) -> Step:
        try:
            accepted = await check(token)
            if authorized not in ("", accepted.user):
                raise TokenRefused("it is for another user than the one that the client asks for")
        except TokenRefused as refused:
            self._refused = str(refused)
            return Challenge(json.dumps({"status": "invalid_token"}).encode())
        return accepted


def _parse(message: bytes) -> tuple[str, str]:
    """The user that the client wants to be, and its token. Raises `SaslFailed`."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise SaslFailed("The message of OAUTHBEARER is not UTF-8") from None
    header, separator, rest = text.partition(_SEPARATOR)
    flag, _, name = header.partition(",")
    if not separator or flag not in ("n", "y") or not rest.endswith(_SEPARATOR * 2):
        raise SaslFailed("A message of OAUTHBEARER is n,,^Aauth=Bearer TOKEN^A^A")
    authorized = name.removesuffix(",").removeprefix("a=")
    for pair in rest.rstrip(_SEPARATOR).split(_SEPARATOR):
        key, _, value = pair.partition("=")
        scheme, _, token = value.partition(" ")
        if key == "auth" and scheme.lower() == "bearer" and token:
            return authorized, token.strip()
    raise SaslFailed("A message of OAUTHBEARER has auth=Bearer TOKEN")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # Not a number (NaN) is within no bounds.
    is_time = type(value) in (int, float) and 0 <= value <= TIME_S_MAX
    if not is_time:
        raise TokenRefused(f"its {name} is no time in seconds")
    return float(value)


def _shown(value: object) -> str:
    """A claim in the log of the broker."""
    if value is None:
        return "missing"
    return quoted(value) if isinstance(value, str) else "no text"
