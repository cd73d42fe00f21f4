"""`millrace group`: list, describe, reset and delete consumer groups.

Owns the flags and the output. `group_progress` asks the broker; `offset_reset` plans a reset.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import CommandError, Exit, confirm, run
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.admin import Admin
    from millrace.groups import GroupDescription, MemberDescription
    from millrace_cli.group_progress import Progress
    from millrace_cli.offset_reset import Move, Target

group = typer.Typer(
    name="group", help="List, describe, reset and delete consumer groups.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Group name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@group.command("list")
def list_(as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """List groups: name, state, members, protocol type."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.list_groups()
        rows = [(each.group, each.state, each.members, each.protocol_type) for each in found]
        if as_json:
            print(json.dumps([dict(zip(_LIST_KEYS, row, strict=True)) for row in rows]))
        else:
            show(("group", "state", "members #", "type"), [_dashed(row) for row in rows])
        return Exit.OK

    run(work())


@group.command()
def describe(name: Name, as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """Show a group's state, its members, and its committed offset in each partition.

    In a pipe, a line begins with `group` (name, state, generation, assignor, leader), with `member`
    (id, instance id, client id, host, partitions as TOPIC:0,1 ...) or with `partition` (topic,
    number, committed offset, end offset, lag, member id). `-` stands for no value.
    """
    from millrace_cli.group_progress import progress

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.describe_group(name)
            partitions = await progress(admin, found)
        if as_json:
            print(json.dumps(_as_json(found, partitions)))
            return Exit.OK
        show(
            ("group", "state", "generation #", "assignor", "leader"),
            [_dashed((found.group, found.state, found.generation, found.assignor, found.leader))],
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
            [
                (*each.where, each.committed, each.end, each.lag, each.member_id)
                for each in partitions
            ],
            title=f"{name}: partitions",
            kind="partition",
        )
        return Exit.OK

    run(work())


ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end: only new records.")]
ToOffset = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="To this offset in each partition.")
]
ToTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="To the first record at or after it: ISO 8601, or ms since the epoch.",
    ),
]
ShiftBy = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Forward by N, or back by -N, within the offsets of the partition."
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="T[:P,...]",
        help="Only this topic, or these partitions of it; may be repeated.  "
        "[default: all with a committed offset]",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Print the moves, and change nothing.")
]


@group.command()
def reset(
    name: Name,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_timestamp: ToTimestamp = None,
    shift_by: ShiftBy = None,
    topic: Topics = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Move the offsets of a group that has no members.

    If one partition cannot be moved, none is moved. Prints topic, partition, the committed offset
    before, and the one after.
    """
    from millrace_cli.offset_reset import chosen_partitions

    target = _target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_timestamp=to_timestamp,
        shift_by=shift_by,
    )
    try:
        chosen = chosen_partitions(topic or ())
    except ValueError as error:
        raise typer.BadParameter(f"--topic: {error}") from None

    async def work() -> Exit:
        from millrace_cli.group_progress import partition_offsets
        from millrace_cli.offset_reset import plan

        async with _admin(servers) as admin:
            await _refuse_members(admin, name)
            moves = plan(target, await partition_offsets(admin, name, chosen, target.time_ms))
            if not dry_run:
                outcomes = await admin.alter_group_offsets(name, {m.where: m.to for m in moves})
                for outcome in outcomes.values():
                    if outcome.error is not None:
                        raise outcome.error
        _show_moves(moves, as_json=as_json)
        return Exit.OK

    run(work())


@group.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete a group that has no members, with its committed offsets."""

    async def known() -> Exit:
        async with _admin(servers) as admin:
            await admin.describe_group(name)
        return Exit.OK

    if not yes:
        confirm(f"Delete group {name} with all its committed offsets?", known())

    async def work() -> Exit:
        async with _admin(servers) as admin:
            await admin.delete_group(name)
        return Exit.OK

    run(work())


_LIST_KEYS = ("group", "state", "members", "protocol_type")
_MOVE_KEYS = ("topic", "partition", "committed", "to")


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, client_id="millrace-cli")


def _target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_timestamp: str | None,
    shift_by: int | None,
) -> Target:
    from millrace_cli.formats.input_format import timestamp_ms
    from millrace_cli.offset_reset import Target

    targets = []
    if to_earliest:
        targets.append(Target(end="earliest"))
    if to_latest:
        targets.append(Target(end="latest"))
    if to_offset is not None:
        targets.append(Target(offset=to_offset))
    if to_timestamp is not None:
        try:
            targets.append(Target(time_ms=timestamp_ms(to_timestamp)))
        except ValueError as error:
            raise typer.BadParameter(f"--to-timestamp: {error}") from None
    if shift_by is not None:
        targets.append(Target(shift=shift_by))
    if len(targets) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-offset, --to-timestamp, --shift-by"
        )
    return targets[0]


async def _refuse_members(admin: Admin, name: str) -> None:
    from millrace.errors import GroupNotFound

    try:
        found = await admin.describe_group(name)
    except GroupNotFound:
        return  # The first commit creates the group.
    if found.members:
        count = len(found.members)
        some = ", ".join(member.client_id or member.member_id for member in found.members[:3])
        raise CommandError(
            f"group {name} has {count} {'member' if count == 1 else 'members'} "
            f"({some}{', ...' if count > 3 else ''}), which would keep their offsets; stop them "
            "first"
        )


def _show_moves(moves: list[Move], *, as_json: bool) -> None:
    rows = [(*move.where, move.committed, move.to) for move in moves]
    if as_json:
        print(json.dumps([dict(zip(_MOVE_KEYS, row, strict=True)) for row in rows]))
    else:
        show(("topic", "partition #", "committed #", "to #"), rows)


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
