"""The command AUTH: a message of SASL in a line."""

from __future__ import annotations

import binascii
from base64 import b64decode

from millrace_server.authentication.plain import PLAIN
from millrace_server.dialects.text.commands import usage_error


def auth_message(mechanism: str, text: str) -> bytes:
    """The message of what was typed behind the mechanism. Raises `ApiError`.

    >>> auth_message("PLAIN", "ada pencil")
    b'\\x00ada\\x00pencil'
    >>> auth_message("SCRAM-SHA-256", "biwsbj1hZGEscj14")
    b'n,,n=ada,r=x'
    """
    if mechanism == PLAIN:
        user, _, password = text.partition(" ")
        return f"\0{user}\0{password}".encode("utf-8", "surrogateescape")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise usage_error("The message of AUTH is not base64") from None
