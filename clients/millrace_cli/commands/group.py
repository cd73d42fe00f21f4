"""`millrace group`: list, describe and delete consumer groups, and show their lag.

Owns these flags and their output; `group_offsets` has those of changes of offsets, and
`group_progress` asks the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.commands.group_offsets import delete_offsets, reset
from millrace_cli.exits import CommandError, Exit, confirm, refused, run
from millrace_cli.json_output import Json, print_json, print_objects
from millrace_cli.name_patterns import check_patterns, expand, is_pattern
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import is_terminal, show

if TYPE_CHECKING:
    from millrace.admin import Admin
    from millrace.groups import GroupDescription, GroupListing, MemberDescription
    from millrace_cli.group_progress import Progress

group = typer.Typer(
    name="group",
    help="List, describe, reset and delete consumer groups, and show their lag.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Group name.")]


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", help="Only these groups; ^REGEX shows the groups that match it."
    ),
]


@group.command("list")
def list_(names: Names = None, as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """List groups: name, state, members, protocol type, lag.

    The lag is the sum over all partitions with a committed offset; - if there is none.
    """
    check_patterns(names or [])

    async def work() -> Exit:
        from millrace_cli.group_progress import progress_of_groups, total_lag

        async with _admin(servers) as admin:
            found = await _listed(admin, names or [])
            partitions = await progress_of_groups(admin, [each.group for each in found])
        rows = [
            (
                *(each.group, each.state, each.members, each.protocol_type),
                total_lag(partitions[each.group]),
            )
            for each in found
        ]
        if as_json:
            print_objects(("group", "state", "members", "protocol_type", "lag"), rows)
        else:
            columns = ("group", "state", "members #", "type", "lag #")
            show(columns, [_dashed(row) for row in rows])
        return Exit.OK

    run(work())


@group.command()
def lag(names: Names = None, as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """Show the lag of all groups, partition by partition.

    Prints group, topic, partition, committed offset, end offset, lag, and the member that has the
    partition.
    """
    check_patterns(names or [])

    async def work() -> Exit:
        from millrace_cli.group_progress import progress_of_groups

        async with _admin(servers) as admin:
            found = [each.group for each in await _listed(admin, names or [])]
            partitions = await progress_of_groups(admin, found)
        rows = [
            (name, *_lag_row(each, for_people=is_terminal() and not as_json))
            for name in found
            for each in partitions[name]
        ]
        if as_json:
            print_objects(_LAG_KEYS, rows)
        else:
            show(_LAG_COLUMNS, rows)
        return Exit.OK

    run(work())


@group.command()
def describe(name: Name, as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """Show a group's state, its members, and its committed offset in each partition.

    In a pipe, a line begins with `group` (name, state, generation, assignor, leader), with `member`
    (id, instance id, client id, host, partitions as TOPIC:0,1 ...) or with `partition` (topic,
    number, committed offset, end offset, lag, member id). `-` stands for no value. On a terminal a
    member is called by its instance id or client id, where no other member has it.
    """
    from millrace_cli.group_progress import member_names, progress

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.describe_group(name)
            partitions = await progress(admin, found)
        if as_json:
            print_json(_as_json(found, partitions))
            return Exit.OK
        leader = found.leader
        if leader is not None and is_terminal():
            leader = member_names(found).get(leader, leader)
        show(
            ("group", "state", "generation #", "assignor", "leader"),
            [_dashed((found.group, found.state, found.generation, found.assignor, leader))],
            kind="group",
        )
        show(
            ("member", "instance", "client", "host", "partitions"),
            [_dashed(_member_row(member)) for member in found.members],
            title=f"{name}: members",
            kind="member",
        )
        show(
            ("topic", "partition #", "committed #", "end #", "lag #", "member"),
            [_lag_row(each, for_people=is_terminal()) for each in partitions],
            title=f"{name}: partitions",
            kind="partition",
        )
        return Exit.OK

    run(work())


group.command()(reset)
group.command("delete-offsets")(delete_offsets)


@group.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Groups to delete; ^REGEX deletes the groups that match it now."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete groups that have no members, with their committed offsets.

    If one of them is not there, none is deleted. Prints nothing; with --json, the groups.
    """
    check_patterns(names)
    found: list[str] = []

    async def find() -> Exit:
        async with _admin(servers) as admin:
            listed = await admin.list_groups() if any(map(is_pattern, names)) else []
            for name in expand(names, [each.group for each in listed], kind="group"):
                await admin.describe_group(name)
                found.append(name)
        return Exit.OK

    async def work() -> Exit:
        if not found:
            await find()
        async with _admin(servers) as admin:
            outcomes = await admin.delete_groups(found)
        errors = {name: each.error for name, each in outcomes.items() if each.error is not None}
        if as_json:
            rows = [(name, str(errors[name]) if name in errors else None) for name in outcomes]
            print_objects(("group", "error"), rows)
        return refused(errors.values())

    if not yes:
        confirm(lambda: _question(found), find())
    run(work())


_LAG_KEYS = ("group", "topic", "partition", "committed", "end_offset", "lag", "member_id")
_LAG_COLUMNS = ("group", "topic", "partition #", "committed #", "end #", "lag #", "member")


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


async def _listed(admin: Admin, names: list[str]) -> list[GroupListing]:
    """The groups that are named, or all. Raises `GroupNotFound` for one that is not there."""
    listed = {each.group: each for each in await admin.list_groups()}
    wanted = expand(names, listed, kind="group") if names else tuple(listed)
    for name in wanted:
        if name not in listed:
            # A group that the client may not see is not listed, and its description says so.
            await admin.describe_group(name)
            raise CommandError(f"group {name!r} was created just now; try again")
    return [listed[name] for name in wanted]


def _question(names: list[str]) -> str:
    if len(names) == 1:
        return f"Delete group {names[0]} with all its committed offsets?"
    return f"Delete {len(names)} groups with all their committed offsets: {', '.join(names)}?"


def _lag_row(found: Progress, *, for_people: bool) -> tuple[object, ...]:
    """The cells of a partition; for people, with the short name of the member."""
    member = found.member if for_people else found.member_id
    return (*found.where, found.committed, found.end, found.lag, member)


def _dashed(row: tuple[object, ...]) -> list[object]:
    """The row with None for empty cells, which `table` shows as `-`."""
    return [None if cell == "" else cell for cell in row]


def _member_row(member: MemberDescription) -> tuple[object, ...]:
    partitions = " ".join(
        f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(member).items()
    )
    return (member.member_id, member.instance_id, member.client_id, member.client_host, partitions)


def _by_topic(member: MemberDescription) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for where in sorted(member.assignment):
        found.setdefault(where.topic, []).append(where.partition)
    return found


def _as_json(found: GroupDescription, partitions: list[Progress]) -> dict[str, object]:
    return {
        "group": found.group,
        "state": found.state,
        "generation": found.generation,
        "protocol_type": found.protocol_type,
        "assignor": found.assignor,
        "leader": found.leader,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "topics": sorted(member.topics),
                "assignment": _by_topic(member),
            }
            for member in found.members
        ],
        "partitions": [
            {
                "topic": each.where.topic,
                "partition": each.where.partition,
                "committed": each.committed,
                "metadata": each.metadata,
                "end_offset": each.end,
                "lag": each.lag,
                "member_id": each.member_id,
            }
            for each in partitions
        ],
    }
