"""Settings of the client that a command uses: `-X name=value`, and the flags of producers.

Owns the text of a setting. The names, types and checks are those of the config classes of the
clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from millrace_cli.client_identity import identity

if TYPE_CHECKING:
    from millrace.config import ClientConfig


class Codec(StrEnum):
    """Compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """The replicas that acknowledge a record."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


Compression = Annotated[Codec, typer.Option("--compression", "-z", help="Compression of batches.")]
AcksFlag = Annotated[Acks, typer.Option(help="Replicas that acknowledge a record.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the client, such as linger_ms=100; may be repeated.",
    ),
]


def client_settings(pairs: Iterable[str] | None, config: type[ClientConfig]) -> dict[str, Any]:
    """Keyword arguments of a client; a name may have dots for underscores.

    `assignors` is a list, with commas between its names. What else a client takes beside its
    settings has an argument or a flag of its own.

    Raises `typer.BadParameter` for an unknown name, and for a value that the setting cannot have.
    """
    from millrace.assignors import chosen
    from millrace.config import configure
    from millrace.errors import ConfigError

    hints = get_type_hints(config)
    try:
        settings: dict[str, Any] = {**identity()}
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    assignors: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        name = name.strip().replace(".", "_")
        if not name or not equals:
            raise typer.BadParameter(f"-X {pair!r} is not NAME=VALUE")
        if name == "assignors" and name in config.parameters:
            assignors = {name: [each.strip() for each in value.split(",")]}
        elif name in ("password", "token"):
            raise typer.BadParameter(
                f"-X {name}: each user of the machine sees it; set MILLRACE_{name.upper()} instead"
            )
        elif name in config.parameters:
            raise typer.BadParameter(
                f"-X {name} is no setting: see --help for its flag or argument"
            )
        else:
            settings[name] = _value(name, value.strip(), hints.get(name, str))
    try:
        configure(config, settings)
        if assignors:
            chosen(assignors["assignors"])
    except ConfigError as error:
        raise typer.BadParameter(f"-X {error}") from None
    return settings | assignors


def producer_settings(
    pairs: Iterable[str] | None, compression: Codec, acks: Acks, broker_timeout_s: float
) -> dict[str, Any]:
    """Keyword arguments of a producer; `-X` overrides the flags. Raises as `client_settings`."""
    from millrace.config import ProducerConfig

    return {
        "compression": compression.value,
        "acks": "all" if acks is Acks.ALL else int(acks),
        "delivery_timeout_ms": max(1, round(broker_timeout_s * 1000)),
        **client_settings(pairs, ProducerConfig),
    }


def _value(name: str, text: str, hint: object) -> Any:
    if hint is str:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19:
        return int(text)
    if hint is int:
        raise typer.BadParameter(f"-X {name}: {text!r} is not a whole number")
    return text
