"""`-X name=value`: settings of the client that a command uses.

Owns the text of a setting. The names, types and checks are those of the config classes of the
clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from millrace.config import ClientConfig

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the client, such as linger_ms=100; may be repeated.",
    ),
]
CLIENT_ID = "millrace-cli"


def client_settings(pairs: Iterable[str] | None, config: type[ClientConfig]) -> dict[str, Any]:
    """Keyword arguments of a client; a name may have dots for underscores.

    Raises `typer.BadParameter` for an unknown name, and for a value that the setting cannot have.
    """
    from millrace.config import configure
    from millrace.errors import ConfigError

    hints = get_type_hints(config)
    settings: dict[str, Any] = {"client_id": CLIENT_ID}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        name = name.strip().replace(".", "_")
        if not name or not equals:
            raise typer.BadParameter(f"-X {pair!r} is not NAME=VALUE")
        settings[name] = _value(name, value.strip(), hints.get(name, str))
    try:
        configure(config, settings)
    except ConfigError as error:
        raise typer.BadParameter(f"-X {error}") from None
    return settings


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
