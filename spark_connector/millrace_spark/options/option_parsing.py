"""Parsing of option texts: counts, sizes, durations, choices and addresses.

Owns the notation, which is that of Spark's own settings: `128m` is 128 MiB, `15m` is 15 minutes.
Each function takes the option's name, for the error, and its text. All raise `OptionError`.
"""

from __future__ import annotations

import re

from millrace.config import parse_servers
from millrace.errors import ConfigError
from millrace_spark.errors import OptionError

COUNT_MAX = 2**63 - 1
_BYTE_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgtp")}
_MS_UNITS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def parse_count(name: str, text: str, *, minimum: int = 1, maximum: int = COUNT_MAX) -> int:
    """A whole number from `minimum` to `maximum`."""
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19
    if not is_number or not minimum <= int(digits) <= maximum:
        raise OptionError(name, f"{text!r} is not a whole number from {minimum} to {maximum}")
    return int(digits)


def parse_bytes(name: str, text: str, *, minimum: int = 1) -> int:
    """A size such as `1048576`, `512k` or `128m`, in bytes; units are powers of 1024.

    >>> parse_bytes("maxPartitionBytes", "128m")
    134217728
    """
    found = re.fullmatch(r"(\d{1,19})\s*([bkmgtp]?)b?", text.strip().lower(), re.ASCII)
    size_bytes = int(found[1]) * _BYTE_UNITS[found[2] or "b"] if found else 0
    if not minimum <= size_bytes <= COUNT_MAX:
        raise OptionError(
            name, f"{text!r} is not a size from {minimum} byte(s); use a number, or 512k, 128m, 1g"
        )
    return size_bytes


def parse_duration_ms(name: str, text: str) -> int:
    """A time span such as `500`, `500ms`, `30s` or `15m`, in milliseconds.

    >>> parse_duration_ms("maxTriggerDelay", "15m")
    900000
    """
    found = re.fullmatch(r"(\d{1,19})\s*(ms|s|m|min|h|d)?", text.strip().lower(), re.ASCII)
    duration_ms = int(found[1]) * _MS_UNITS[found[2] or "ms"] if found else -1
    if not 0 <= duration_ms <= COUNT_MAX:
        raise OptionError(
            name, f"{text!r} is not a time span; use milliseconds, or 500ms, 30s, 15m, 1h"
        )
    return duration_ms


def parse_word(name: str, text: str, words: tuple[str, ...]) -> str:
    """One of `words`, in any case."""
    if text.strip().lower() not in words:
        raise OptionError(name, f"{text!r} is not {' or '.join(words)}")
    return text.strip().lower()


def parse_flag(name: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    return parse_word(name, text, ("true", "false")) == "true"


def parse_brokers(name: str, text: str | None) -> str:
    """One `host:port`, or several with commas between."""
    if text is None:
        raise OptionError(name, "is missing; name the brokers, as in localhost:9092")
    try:
        parse_servers(text)
    except ConfigError as error:
        raise OptionError(name, str(error).removeprefix("servers: ")) from None
    return text
