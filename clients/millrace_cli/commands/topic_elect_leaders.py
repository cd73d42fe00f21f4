"""`millrace topic elect-leaders`: give partitions to their preferred leaders, or to any."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, confirm, refused, run, tell
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show
from millrace_cli.visible_text import counted

if TYPE_CHECKING:
    from millrace.admin import Admin
    from millrace.records import TopicPartition


def elect_leaders(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Topic names.  [default: all topics]"),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, help="Only this partition; may be repeated.  [default: all]"
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Give partitions without a leader any replica as one. Records may be lost.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Make the first replica of each partition its leader, where it is not.

    A leader moves back by itself within a minute, after its broker has come back. With --unclean
    the command is about partitions that have no leader, because no replica in sync is in service.

    Prints topic, partition and new leader of each partition that got one; without --json, their
    number on stderr.
    """
    if partition and len(names or ()) != 1:
        raise typer.BadParameter("--partition goes with one topic")
    chosen: list[TopicPartition] = []

    async def find() -> Exit:
        from millrace.admin import Admin

        async with Admin(servers, **identity()) as admin:
            chosen.extend(await _chosen(admin, names or [], partition or [], unclean=unclean))
        return Exit.OK

    async def work() -> Exit:
        if not chosen:
            await find()
        rows = await _elect(servers, chosen, unclean=unclean)
        if as_json:
            print_objects(("topic", "partition", "leader", "error"), rows)
        else:
            show(("topic", "partition #", "leader #"), [r[:-1] for r in rows if r[-1] is None])
            sys.stdout.flush()
            tell(_done([error for *_, error in rows], unclean=unclean))
        return refused(error for *_, error in rows if error)

    if unclean and not yes:
        confirm(lambda: _question(chosen), find())
    run(work())


async def _elect(
    servers: str, chosen: list[TopicPartition], *, unclean: bool
) -> list[tuple[object, ...]]:
    """Topic, partition, leader and error of each election that was held."""
    from millrace.admin import Admin
    from millrace.errors import ElectionNotNeeded

    if not chosen:
        return []
    async with Admin(servers, **identity()) as admin:
        outcomes = await admin.elect_leaders(chosen, unclean=unclean)
    return [
        (*where, each.value, None if each.error is None else str(each.error))
        for where, each in outcomes.items()
        if not isinstance(each.error, ElectionNotNeeded)
    ]


async def _chosen(
    admin: Admin, names: list[str], numbers: list[int], *, unclean: bool
) -> list[TopicPartition]:
    """The partitions that need the election, among those that are named."""
    from millrace.records import TopicPartition

    found: list[TopicPartition] = []
    for outcome in await admin.describe_topics(names or await admin.list_topics(internal=True)):
        topic = outcome.unwrap()
        count = len(topic.partitions)
        for number in numbers:
            if number >= count:
                raise CommandError(
                    f"{topic.name} has no partition {number}; it has 0 to {count - 1}"
                )
        found += [
            TopicPartition(topic.name, each.partition)
            for each in topic.partitions
            if (not numbers or each.partition in numbers)
            and (each.leader is None if unclean else each.leader != each.replicas[0])
        ]
    return found


def _done(errors: list[object], *, unclean: bool) -> str:
    """What the command has done; `errors` has one of each election, None for success."""
    if errors:
        return f"{counted(errors.count(None), 'partition')} got a leader"
    if unclean:
        return "nothing to elect: each partition has a leader"
    return "nothing to elect: the first replica of each partition leads"


def _question(chosen: list[TopicPartition]) -> str:
    if not chosen:
        return ""
    shown = ", ".join(map(str, chosen[:3])) + (", ..." if len(chosen) > 3 else "")
    return (
        f"Elect any replica of {counted(len(chosen), 'partition')}, {shown}? Records may be lost."
    )
