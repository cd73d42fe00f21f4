"""`millrace quota`: what clients may take of each broker.

Owns these flags and their output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, confirm, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.admin import Admin
    from millrace.quotas import QuotaEntity

_COLUMNS = ("user", "client_id", "ip", "quota", "value")
quota = typer.Typer(
    name="quota",
    help="Set, list and remove bounds on what clients take.",
    no_args_is_help=True,
)
User = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of a user; * is each without one of its own.")
]
ClientId = Annotated[str | None, typer.Option(metavar="ID", help="Of a client id; * is each.")]
Ip = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of an IP address; * is each.")]


@quota.command("set")
def set_(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=NUMBER...",
            help="producer_byte_rate, consumer_byte_rate, request_percentage, "
            "controller_mutation_rate; of an address connection_creation_rate.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Set quotas of a user, a client id, both, or an address. Prints nothing."""
    entity = _entity(user, client_id, ip)
    wanted: Any = dict(_value(each) for each in values)

    async def work() -> Exit:
        async with _admin(servers) as admin:
            (await admin.alter_quotas({entity: wanted}))[entity].unwrap()
        return Exit.OK

    run(work())


@quota.command("list")
def list_(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """List quotas; with flags, those of entities with these names."""
    has_flags = (user, client_id, ip) != (None, None, None)
    chosen = _entity(user, client_id, ip) if has_flags else None

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.list_quotas(chosen)
        rows = sorted(
            (
                (entity.user, entity.client_id, entity.ip, name, value)
                for entity, values in found.items()
                for name, value in values.items()
            ),
            key=lambda row: [part or "" for part in row[:4]],
        )
        if as_json:
            print_objects(_COLUMNS, rows)
        else:
            shown = [(*(name or "-" for name in row[:3]), row[3], f"{row[4]:.12g}") for row in rows]
            show([each.upper().replace("_", " ") for each in _COLUMNS], shown)
        return Exit.OK

    run(work())


@quota.command()
def remove(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA...]", help="[default: all]")
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Remove quotas of an entity. Prints nothing."""
    entity = _entity(user, client_id, ip)
    going: dict[Any, None] = {}

    async def find() -> Exit:
        async with _admin(servers) as admin:
            found = (await admin.list_quotas(entity)).get(entity, {})
        for name in names or found:
            if name not in found:
                raise CommandError(f"there is no quota {name} of it; see `millrace quota list`")
            going[name] = None
        if not going:
            raise CommandError("it has no quota; `millrace quota list` shows those there are")
        return Exit.OK

    async def work() -> Exit:
        if not going:
            await find()
        async with _admin(servers) as admin:
            (await admin.alter_quotas({entity: going}))[entity].unwrap()
        return Exit.OK

    if not yes:
        confirm(lambda: f"Remove {', '.join(going)}?", find())
    run(work())


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


def _entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    """Raises `typer.BadParameter`."""
    from millrace.errors import ConfigError
    from millrace.quotas import QuotaEntity

    try:
        return QuotaEntity(user, client_id, ip)
    except ConfigError:
        raise typer.BadParameter(
            "say whose quota it is: --user, --client-id, both, or --ip"
        ) from None


def _value(text: str) -> tuple[str, float]:
    """
    >>> _value("producer_byte_rate=1e6")
    ('producer_byte_rate', 1000000.0)
    """
    name, separator, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        reason = f"{value!r} is no number" if separator else "it has no ="
        raise typer.BadParameter(f"{text!r}: {reason}; give QUOTA=NUMBER") from None
