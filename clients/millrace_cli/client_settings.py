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

    Raises `ConfigError` for an unknown name, and `typer.BadParameter` for a text that is not
    NAME=VALUE, or not of the setting's type.
    """
    from millrace.config import configure

    hints = get_type_hints(config)
    settings: dict[str, Any] = {"client_id": CLIENT_ID}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        name = name.strip().replace(".", "_")
        if not name or not equals:
            raise typer.BadParameter(f"-X {pair!r} is not NAME=VALUE")
        if name not in hints:
            configure(config, {name: value})
        settings[name] = _value(name, value.strip(), hints[name])
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
