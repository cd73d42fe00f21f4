"""`millrace topic trim`: delete the oldest records of a topic.

Owns the flags, the question and the output. `millrace_cli.topic_trim` plans.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, confirm, refused, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show
from millrace_cli.visible_text import counted

if TYPE_CHECKING:
    from millrace.admin import Admin
    from millrace_cli.topic_trim import Trim, TrimTarget

Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="N|latest",
        help="Delete the records before offset N; latest: all that are there now.",
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Delete the records before the first one at or after TIME: ISO 8601, or ms since "
        "the epoch.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Only this partition; may be repeated.  [default: all]"
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Print what would go, and delete nothing.")
]
_KEYS = ("topic", "partition", "old_start_offset", "start_offset", "error")


def trim(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Topic name.")],
    offset: Offset = None,
    timestamp: Timestamp = None,
    partition: Partitions = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete the oldest records of a topic's partitions.

    If one partition has no such offset, none is trimmed. A deletion is durable, and the partition
    begins at its new start offset at once; the space on the disk becomes free with whole segments.
    Prints topic, partition, the start offset before, and the one after.
    """
    target = _target(offset, timestamp)
    plans: list[Trim] = []

    async def plan() -> Exit:
        async with _admin(servers) as admin:
            plans.extend(await _plan(admin, name, target, partition or []))
        return Exit.OK

    async def work() -> Exit:
        if not plans:
            await plan()
        if dry_run:
            return _show([(*each.where, each.before, each.after, None) for each in plans], as_json)
        async with _admin(servers) as admin:
            return _show(await _delete(admin, plans), as_json)

    if not yes and not dry_run:
        confirm(lambda: _question(name, plans), plan())
    run(work())


def _target(offset: str | None, timestamp: str | None) -> TrimTarget:
    from millrace_cli.formats.input_format import timestamp_ms
    from millrace_cli.topic_trim import TrimTarget

    if (offset is None) == (timestamp is None):
        raise typer.BadParameter("give one of --offset, --timestamp")
    if timestamp is not None:
        try:
            return TrimTarget(time_ms=timestamp_ms(timestamp))
        except ValueError as error:
            raise typer.BadParameter(f"--timestamp: {error}") from None
    assert offset is not None
    if offset == "latest":
        return TrimTarget(is_end=True)
    if not re.fullmatch(r"\d{1,18}", offset, re.ASCII):
        raise typer.BadParameter(f"--offset: {offset!r} is neither an offset nor latest")
    return TrimTarget(offset=int(offset))


async def _plan(admin: Admin, name: str, target: TrimTarget, chosen: list[int]) -> list[Trim]:
    from millrace.records import TopicPartition
    from millrace_cli.topic_trim import LogRange, plan_trim

    known = [each.partition for each in (await admin.describe_topic(name)).partitions]
    for number in chosen:
        if number not in known:
            raise CommandError(f"{name} has no partition {number}; it has 0 to {len(known) - 1}")
    wanted = [TopicPartition(name, number) for number in sorted({*chosen}) or known]
    starts = await admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
    at_time: dict[TopicPartition, int] = {}
    if target.time_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(wanted, target.time_ms))
        at_time = {where: answer.offset for where, answer in found.items() if answer.offset >= 0}
    logs = {
        where: LogRange(starts[where].offset, ends[where].offset, at_time.get(where))
        for where in wanted
    }
    return plan_trim(target, logs)


def _question(name: str, plans: list[Trim]) -> str:
    """What the user is asked; empty when there is nothing to delete."""
    trims = [each for each in plans if each.offsets]
    if not trims:
        return ""
    records = counted(sum(each.offsets for each in trims), "record")
    return f"Delete up to {records} of {name}, in {counted(len(trims), 'partition')}?"


async def _delete(admin: Admin, plans: list[Trim]) -> list[tuple[object, ...]]:
    outcomes = await admin.delete_records({t.where: t.after for t in plans if t.offsets})
    rows: list[tuple[object, ...]] = []
    for each in plans:
        start, error = each.before, None
        if each.where in outcomes:
            outcome = outcomes[each.where]
            start = each.before if outcome.value is None else outcome.value
            error = None if outcome.error is None else str(outcome.error)
        rows.append((*each.where, each.before, start, error))
    return rows


def _show(rows: list[tuple[object, ...]], as_json: bool) -> Exit:
    if as_json:
        print_objects(_KEYS, rows)
    else:
        done = [row[:-1] for row in rows if row[-1] is None]
        show(("topic", "partition #", "start before #", "start #"), done)
    return refused(error for *_, error in rows if error)


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())
