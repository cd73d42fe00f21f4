"""`millrace acl`: the rights of principals.

Owns these flags and their output, and which entries a line of flags stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, confirm, refused, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.acls import Acl, AclFilter
    from millrace.admin import Admin

_CLUSTER = "kafka-cluster"
acl = typer.Typer(
    name="acl",
    help="Add, list and remove the rights of principals.",
    no_args_is_help=True,
)
Operations = Annotated[
    str | None,
    typer.Option(
        metavar="OPERATION,...",
        help="read, write, create, delete, alter, describe, describe_configs, alter_configs, "
        "idempotent_write, or all.",
    ),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="May be repeated; * is all.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="May be repeated; * is all.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="Operations on the cluster itself.")]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="Names stand for all that begin with them.")
]
Host = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="From this IP address only.  [default: all]")
]


@acl.command()
def add(
    principal: Annotated[
        str,
        typer.Argument(metavar="PRINCIPAL", help="User:NAME, or the name alone; * is everyone."),
    ],
    allow: Operations = None,
    deny: Operations = None,
    topics: Topics = None,
    groups: Groups = None,
    of_cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Allow or deny operations on topics, groups or the cluster.

    Prints nothing; with --json, the entries.
    """
    wanted = [*_entries(principal, allow, deny, topics, groups, of_cluster, prefixed, host)]

    async def work() -> Exit:
        async with _admin(servers) as admin:
            outcomes = await admin.create_acls(wanted)
        if as_json:
            rows = [
                (*astuple(each), None if outcome.error is None else str(outcome.error))
                for each, outcome in outcomes.items()
            ]
            print_objects((*_columns(), "error"), rows)
        return refused([each.error for each in outcomes.values() if each.error is not None])

    run(work())


@acl.command("list")
def list_(
    principal: Annotated[
        str | None, typer.Option(metavar="PRINCIPAL", help="Entries of this principal.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Entries that concern this topic.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Entries that concern this group.")
    ] = None,
    of_cluster: OfCluster = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """List entries, in the order in which they were added."""
    chosen = _chosen(principal, topic, group, of_cluster)

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.list_acls(chosen)
        if as_json:
            print_objects(_columns(), map(astuple, found))
        else:
            show([each.upper().replace("_", " ") for each in _columns()], map(astuple, found))
        return Exit.OK

    run(work())


@acl.command()
def remove(
    principal: Annotated[
        str,
        typer.Argument(metavar="PRINCIPAL", help="User:NAME, or the name alone; * is everyone."),
    ],
    allow: Operations = None,
    deny: Operations = None,
    topics: Topics = None,
    groups: Groups = None,
    of_cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Remove what `acl add` with the same arguments has added; without flags, all of a principal.

    Prints nothing; with --json, the entries.
    """
    from millrace.acls import AclFilter

    if allow or deny or topics or groups or of_cluster or prefixed or host:
        entries = _entries(principal, allow, deny, topics, groups, of_cluster, prefixed, host)
        filters = [AclFilter(*astuple(each)) for each in entries]
    else:
        filters = [AclFilter(_principal(principal))]
    found: list[Acl] = []

    async def find() -> Exit:
        async with _admin(servers) as admin:
            for each in filters:
                found.extend(await admin.list_acls(each))
        if not found:
            raise CommandError("there is no such entry; `millrace acl list` shows those there are")
        return Exit.OK

    async def work() -> Exit:
        async with _admin(servers) as admin:
            removed = await admin.delete_acls(filters)
        if not removed:
            raise CommandError("there is no such entry; `millrace acl list` shows those there are")
        if as_json:
            print_objects(_columns(), map(astuple, removed))
        return Exit.OK

    if not yes:
        confirm(lambda: _question(found), find())
    run(work())


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


def _columns() -> tuple[str, ...]:
    from millrace.acls import Acl

    return tuple(each.name for each in fields(Acl))


def _principal(name: str) -> str:
    """
    >>> _principal("ada"), _principal("User:CN=loader,O=Mill"), _principal("*")
    ('User:ada', 'User:CN=loader,O=Mill', 'User:*')
    """
    return name if name.startswith("User:") else f"User:{name}"


def _entries(
    principal: str,
    allow: str | None,
    deny: str | None,
    topics: list[str] | None,
    groups: list[str] | None,
    of_cluster: bool,
    prefixed: bool,
    host: str | None,
) -> Iterator[Acl]:
    """The entries of the flags. Raises `typer.BadParameter`."""
    from millrace.acls import Acl
    from millrace.errors import ConfigError

    resources: list[tuple[Any, str]] = [
        *(("topic", name) for name in topics or ()),
        *(("group", name) for name in groups or ()),
        *([("cluster", _CLUSTER)] if of_cluster else ()),
    ]
    if not resources:
        raise typer.BadParameter("name what it is for: --topic, --group or --cluster")
    if not (allow or deny):
        raise typer.BadParameter("say what is to be done: --allow or --deny, with operations")
    for permission, operations in (("allow", allow), ("deny", deny)):
        for operation in (operations or "").split(",") if operations else ():
            for kind, name in resources:
                pattern = "prefixed" if prefixed and kind != "cluster" else "literal"
                words: Any = (
                    operation.strip().lower(),
                    kind,
                    name,
                    pattern,
                    host or "*",
                    permission,
                )
                try:
                    yield Acl(_principal(principal), *words)
                except ConfigError as error:
                    raise typer.BadParameter(str(error)) from None


def _chosen(
    principal: str | None, topic: str | None, group: str | None, of_cluster: bool
) -> AclFilter:
    """Raises `typer.BadParameter`."""
    from millrace.acls import AclFilter

    if (topic is not None) + (group is not None) + of_cluster > 1:
        raise typer.BadParameter("name one of --topic, --group and --cluster")
    who = None if principal is None else _principal(principal)
    if topic is not None:
        return AclFilter(who, None, "topic", topic, "match")
    if group is not None:
        return AclFilter(who, None, "group", group, "match")
    return AclFilter(who, resource_type="cluster" if of_cluster else None)


def _question(found: list[Acl]) -> str:
    shown = [
        f"{each.permission} {each.principal} {each.operation} on {each.resource_type} "
        f"{each.resource_name}{'*' if each.pattern == 'prefixed' else ''}"
        f"{'' if each.host == '*' else f' from {each.host}'}"
        for each in found
    ]
    return f"Remove {'; '.join(shown)}?"
