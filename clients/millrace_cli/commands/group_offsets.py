"""`millrace group reset` and `delete-offsets`: change the committed offsets of a group.

Owns the flags and the output. `group_progress` asks the broker; `millrace._group_reset` plans a
reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, confirm, refused, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show
from millrace_cli.visible_text import counted

if TYPE_CHECKING:
    from millrace._group.offset_reset import Move, Target
    from millrace.admin import Admin
    from millrace.records import TopicPartition

Name = Annotated[str, typer.Argument(metavar="NAME", help="Group name.")]
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
    from millrace_cli.partition_names import chosen_partitions

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
        from millrace._group.offset_reset import NoSuchOffset
        from millrace._group_reset import planned_moves
        from millrace_cli.group_progress import reset_partitions

        async with _admin(servers) as admin:
            await _refuse_members(admin, name)
            partitions = await reset_partitions(admin, name, chosen)
            try:
                moves = await planned_moves(admin, name, partitions, target)
            except NoSuchOffset as error:
                raise CommandError(str(error)) from None
            if not dry_run:
                outcomes = await admin.alter_group_offsets(name, {m.where: m.to for m in moves})
                for outcome in outcomes.values():
                    if outcome.error is not None:
                        raise outcome.error
        _show_moves(moves, as_json=as_json)
        return Exit.OK

    run(work())


OffsetTopics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="T[:P,...]",
        help="Offsets of this topic, or of these partitions of it; may be repeated.",
    ),
]


def delete_offsets(
    name: Name,
    topic: OffsetTopics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete the committed offsets of topics that no member of the group reads.

    The group then begins there as a new one does. Prints topic, partition, and the committed offset
    that was deleted.
    """
    from millrace_cli.partition_names import chosen_partitions

    try:
        chosen = chosen_partitions(topic)
    except ValueError as error:
        raise typer.BadParameter(f"--topic: {error}") from None
    found: dict[TopicPartition, int] = {}

    async def find() -> Exit:
        from millrace_cli.group_progress import committed_of

        async with _admin(servers) as admin:
            await admin.describe_group(name)
            found.update(await committed_of(admin, name, chosen))
        return Exit.OK

    async def work() -> Exit:
        if not found:
            await find()
        async with _admin(servers) as admin:
            outcomes = await admin.delete_group_offsets(name, found)
        errors = {where: each.error for where, each in outcomes.items() if each.error is not None}
        if as_json:
            print_objects(
                ("topic", "partition", "committed", "error"),
                [
                    (*where, offset, str(errors[where]) if where in errors else None)
                    for where, offset in found.items()
                ],
            )
        else:
            done = [(*where, offset) for where, offset in found.items() if where not in errors]
            show(("topic", "partition #", "deleted offset #"), done)
        return refused(errors.values())

    def question() -> str:
        topics = ", ".join(sorted({where.topic for where in found}))
        return f"Delete {counted(len(found), 'committed offset')} of group {name} in {topics}?"

    if not yes:
        confirm(question, find())
    run(work())


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


def _target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_timestamp: str | None,
    shift_by: int | None,
) -> Target:
    from millrace._group.offset_reset import Target
    from millrace_cli.formats.input_format import timestamp_ms

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
        print_objects(("topic", "partition", "committed", "to"), rows)
    else:
        show(("topic", "partition #", "committed #", "to #"), rows)
