"""`millrace topic reassign`: move the replicas of a topic's partitions to other brokers.

Owns the flags, the spread of the preferred leaders, and the output. `replica_moves` waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError, Exit, refused, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millrace.admin import Admin
    from millrace.brokers import Reassignment
    from millrace.groups import Outcome
    from millrace.records import TopicPartition

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Topic name.  [--list: without it all topics]"),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Only this partition; may be repeated.  [default: all]"
    ),
]
Brokers = tuple[int, ...]
Row = tuple[str, int, Brokers, Brokers, Brokers, Brokers, str | None]
SETTLED_S = 10.0
"""How long after the active controller another broker may have the end of a reassignment."""
_KEYS = ("topic", "partition", "replicas", "adding", "removing", "missing", "error")
_COLUMNS = ("topic", "partition #", "replicas", "adding", "removing", "not in sync")


def reassign(
    name: Name = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            "-r",
            metavar="ID,...",
            help="The brokers that are to have a replica, the preferred leader first.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Go back to the replicas before the reassignment.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", "-l", help="Show what is being reassigned.")
    ] = False,
    partition: Partitions = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where another reassignment is in progress.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End as soon as it has begun.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Move a topic's replicas to other brokers, while it serves.

    The new replicas catch up first, and the old ones are removed when all new ones are in sync.
    The command waits for that and shows the progress; ^C ends the command, not the reassignment.
    With several partitions, each begins with the next of the brokers, so that all of them lead.

    Prints topic, partition, replicas, and of these the brokers that are added, those that are
    removed (both only while it is in progress), and those that are added and not in sync.
    """
    if (replicas is not None) + cancel + list_ != 1:
        raise typer.BadParameter("give one of --replicas, --cancel, --list")
    if replicas is None and (replace or no_wait):
        raise typer.BadParameter("--replace and --no-wait go with --replicas")
    if name is None and (partition or not list_):
        raise typer.BadParameter("give the name of a topic; only --list goes without")
    brokers = None if replicas is None else _brokers(replicas)

    async def work() -> Exit:
        from millrace.admin import Admin

        async with Admin(servers, **identity()) as admin:
            places = [] if name is None else await _places(admin, name, partition or [])
            if brokers is not None:
                rows = await _move(admin, places, brokers, replace=replace, is_awaited=not no_wait)
            elif cancel:
                rows = await _cancel(admin, places, is_each=bool(partition))
            else:
                rows = await _listed(admin, places)
        return _show(rows, as_json=as_json)

    run(work())


async def _listed(admin: Admin, places: list[TopicPartition]) -> list[Row]:
    """What is being reassigned of these partitions, of all if there are none."""
    topics = [places[0].topic] if places else None
    ongoing = await admin.list_partition_reassignments(topics)
    return [_row(where, ongoing[where]) for where in places or sorted(ongoing) if where in ongoing]


def _show(rows: list[Row], *, as_json: bool) -> Exit:
    if as_json:
        print_objects(_KEYS, rows)
    else:
        done = [row for row in rows if row[-1] is None]
        show(_COLUMNS, [(*row[:2], *map(_ids, row[2:6])) for row in done])
    return refused(error for *_, error in rows if error)


async def _move(
    admin: Admin,
    places: list[TopicPartition],
    brokers: Brokers,
    *,
    replace: bool,
    is_awaited: bool,
) -> list[Row]:
    wanted = {
        where: (*brokers[index % len(brokers) :], *brokers[: index % len(brokers)])
        for index, where in enumerate(places)
    }
    outcomes = await admin.alter_partition_reassignments(dict(wanted.items()), replace=replace)
    begun = {where: wanted[where] for where in places if outcomes[where].error is None}
    name = places[0].topic
    if is_awaited and begun:
        await _wait(admin, name, begun)
    ongoing = await admin.list_partition_reassignments([name])
    return [_begun_row(where, wanted, outcomes[where], ongoing) for where in places]


def _brokers(text: str) -> tuple[int, ...]:
    ids = text.split(",")
    if not all(each.strip().isdecimal() for each in ids):
        raise typer.BadParameter(f"--replicas: {text!r} is not a list of broker ids such as 1,2,3")
    return tuple(int(each) for each in ids)


async def _places(admin: Admin, name: str, chosen: list[int]) -> list[TopicPartition]:
    from millrace.records import TopicPartition

    known = [each.partition for each in (await admin.describe_topic(name)).partitions]
    for number in chosen:
        if number not in known:
            raise CommandError(f"{name} has no partition {number}; it has 0 to {len(known) - 1}")
    return [TopicPartition(name, number) for number in sorted({*chosen}) or known]


async def _cancel(admin: Admin, places: list[TopicPartition], *, is_each: bool) -> list[Row]:
    """`is_each`: it is an error of a partition that it is not being reassigned."""
    name = places[0].topic
    ongoing = await admin.list_partition_reassignments([name])
    if not is_each:
        places = [where for where in places if where in ongoing]
    if not places:
        raise CommandError(
            f"no partition of {name} is being reassigned; there is nothing to cancel"
        )
    outcomes = await admin.alter_partition_reassignments(dict.fromkeys(places))
    rows: list[Row] = []
    for where in places:
        before = ongoing.get(where)
        kept = () if before is None else (r for r in before.replicas if r not in before.adding)
        rows.append((*where, tuple(kept), (), (), (), _text(outcomes[where])))
    return rows


async def _wait(admin: Admin, name: str, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    """Returns when these partitions have their replicas."""
    import asyncio

    from millrace_cli.replica_moves import POLL_S, wait_until_moved

    async def find() -> Mapping[TopicPartition, Reassignment]:
        ongoing = await admin.list_partition_reassignments([name])
        return {where: each for where, each in ongoing.items() if where in wanted}

    await wait_until_moved(admin, find, action=f"moving {name}", partitions=len(wanted))
    for _ in range(int(SETTLED_S / POLL_S)):
        found = {
            each.partition: each.replicas for each in (await admin.describe_topic(name)).partitions
        }
        others = {w: found[w.partition] for w in wanted if found[w.partition] != wanted[w]}
        if not others:
            return
        # The broker that answers has the change a moment after the active controller.
        await asyncio.sleep(POLL_S)
    where, replicas = next(iter(others.items()))
    raise CommandError(
        f"{where} has its replicas on brokers {_ids(replicas)}: the reassignment was cancelled or "
        "replaced meanwhile"
    )


def _begun_row(
    where: TopicPartition,
    wanted: Mapping[TopicPartition, tuple[int, ...]],
    outcome: Outcome[bool],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> Row:
    if where in ongoing:
        return _row(where, ongoing[where], _text(outcome))
    return (*where, wanted[where] if outcome.error is None else (), (), (), (), _text(outcome))


def _row(where: TopicPartition, found: Reassignment, error: str | None = None) -> Row:
    return (*where, found.wanted, found.adding, found.removing, found.missing, error)


def _text(outcome: Outcome[bool]) -> str | None:
    return None if outcome.error is None else str(outcome.error)


def _ids(brokers: object) -> str | None:
    """`1,2,3`; None for no broker."""
    return ",".join(map(str, brokers)) or None if isinstance(brokers, tuple) else None
