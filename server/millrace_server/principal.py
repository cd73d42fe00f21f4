"""Principals: the names of peers, as Kafka writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

ANONYMOUS = "User:ANONYMOUS"
"""A peer that has not authenticated; Kafka's name for it."""
USER_BYTES_MAX = 255
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = frozenset(',+"\\<>;')


def is_user_name(name: str) -> bool:
    """Whether a user may have this name.

    >>> is_user_name("loader"), is_user_name(""), is_user_name("a\\nb")
    (True, False, False)
    >>> is_user_name("ANONYMOUS")  # Of clients that have not authenticated.
    False
    """
    is_one = 1 <= len(name.encode()) <= USER_BYTES_MAX and name.isprintable()
    return is_one and user_principal(name) != ANONYMOUS


def user_principal(name: str) -> str:
    """The principal of a user.

    >>> user_principal("loader")
    'User:loader'
    """
    return f"User:{name}"


def user_name(principal: str) -> str:
    """The name of a principal, as quotas have it.

    >>> user_name("User:loader")
    'loader'
    """
    return principal.partition(":")[2]


def certificate_principal(subject: Iterable[Iterable[tuple[str, Any]]]) -> str:
    """The principal of a certificate: its subject as `ssl.SSLSocket.getpeercert` gives it.

    Written as RFC 2253 has it, the last part first, as Kafka does (KIP-371).

    >>> certificate_principal(((("organizationName", "Mill"),), (("commonName", "loader"),)))
    'User:CN=loader,O=Mill'
    """
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(str(value))}" for name, value in part)
        for part in subject
    ]
    return f"User:{','.join(reversed(parts))}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and text != "\\ " else text
