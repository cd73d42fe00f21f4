"""`millrace cluster`: brokers, with their state, statistics, settings and data directories.

Owns the flags of `config` and `logs`, and their output. The other commands have modules of their
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.commands.cluster_info import info
from millrace_cli.commands.cluster_start import start
from millrace_cli.commands.cluster_status import status
from millrace_cli.commands.cluster_voters import add_voter, remove_voter
from millrace_cli.exits import CommandError, Exit, run, unanswered
from millrace_cli.json_output import Json, print_json
from millrace_cli.name_patterns import check_patterns, expand
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import Size, show, size_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.admin import Admin
    from millrace.brokers import BrokerDescription, ConfigValue, LogDirectory
    from millrace.errors import BrokerError
    from millrace_cli.each_broker import BrokerAnswer

cluster = typer.Typer(
    name="cluster",
    help="Show brokers, their state, statistics, settings and data; change voters; run a cluster.",
    no_args_is_help=True,
)
Broker = Annotated[
    int | None,
    typer.Option("--broker", "-b", metavar="ID", help="Only this broker.  [default: all]"),
]


@cluster.callback()
def _cluster() -> None:
    pass


cluster.command()(start)
cluster.command()(info)
cluster.command()(status)
cluster.command()(add_voter)
cluster.command()(remove_voter)


@cluster.command()
def config(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Only these settings; ^REGEX shows the settings that match it.",
        ),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that are not at their defaults.")
    ] = False,
    broker: Broker = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show the settings of brokers: broker, name, value, and what sets it.

    A value is set by a flag, the environment, the file, an argument of the program that embeds the
    broker, or is the default. With --json, a setting also has its meaning.
    """
    check_patterns(names or [])

    async def work() -> Exit:
        from millrace_cli.each_broker import ask_each

        async with _admin(servers) as admin:
            brokers = await _brokers(admin, broker)
            found = await ask_each(brokers, admin.describe_broker_configs)
        wanted = _wanted_settings(names, found)
        shown = [
            (answer, name, entry)
            for answer in found
            for name, entry in (answer.value or {}).items()
            if name in wanted and not (changed and entry.is_default)
        ]
        if as_json:
            print_json([_config_json(answer, shown) for answer in found])
        else:
            rows = [(a.broker.node_id, name, e.value, e.source) for a, name, e in shown]
            show(("broker #", "setting", "value", "set by"), rows)
        return unanswered((each.broker.node_id, each.error) for each in found)

    run(work())


@cluster.command()
def logs(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Only partitions of these topics; ^REGEX shows the topics that match it.",
        ),
    ] = None,
    broker: Broker = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show the data directories of brokers, and what each partition takes there.

    In a pipe, a line begins with `directory` (broker, path, partitions, their bytes, free and
    total bytes of the file system, error) or with `partition` (broker, topic, number, bytes,
    offsets behind the high watermark, error). The error says why a directory or a partition is
    offline.
    """
    check_patterns(topics or [])

    async def work() -> Exit:
        from millrace_cli.each_broker import ask_each

        async with _admin(servers) as admin:
            wanted = await _wanted_topics(admin, topics) if topics else None
            brokers = await _brokers(admin, broker)
            found = await ask_each(
                brokers, lambda node_id: admin.describe_log_dirs(wanted, broker=node_id)
            )
        directories = [directory for answer in found for directory in answer.value or ()]
        if as_json:
            print_json([_logs_json(answer) for answer in found])
        else:
            show(_DIRECTORY_COLUMNS, map(_directory_row, directories), kind="directory")
            partitions = [row for each in directories for row in _partition_rows(each)]
            show(_PARTITION_COLUMNS, partitions, title="partitions", kind="partition")
        return unanswered((each.broker.node_id, each.error) for each in found)

    run(work())


_DIRECTORY_COLUMNS = (
    *("broker #", "path", "partitions #", "size #", "free #", "total #"),
    "error",
)
_PARTITION_COLUMNS = ("broker #", "topic", "partition #", "size #", "lag #", "error")


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


async def _brokers(admin: Admin, wanted: int | None) -> Sequence[BrokerDescription]:
    brokers = (await admin.describe_cluster()).brokers
    if wanted is None:
        return brokers
    found = [broker for broker in brokers if broker.node_id == wanted]
    if not found:
        ids = ", ".join(str(broker.node_id) for broker in brokers)
        raise CommandError(f"the cluster has no broker {wanted}; it has {ids}")
    return found


def _wanted_settings(
    names: list[str] | None, found: Sequence[BrokerAnswer[dict[str, ConfigValue]]]
) -> frozenset[str]:
    known = dict.fromkeys(name for each in found for name in each.value or ())
    if not names or not known:
        return frozenset(known)
    wanted = expand(names, known, kind="setting")
    for name in wanted:
        if name not in known:
            raise CommandError(f"no setting {name!r}; millrace cluster config lists all of them")
    return frozenset(wanted)


async def _wanted_topics(admin: Admin, topics: list[str]) -> tuple[str, ...]:
    wanted = expand(topics, await admin.list_topics(internal=True), kind="topic")
    for outcome in await admin.describe_topics(wanted):
        outcome.unwrap()
    return wanted


def _directory_row(found: LogDirectory) -> tuple[object, ...]:
    sizes = [max(each.size_bytes, 0) for each in found.partitions.values()]
    return (
        found.node_id,
        found.path,
        len(sizes),
        Size(sum(sizes)),
        size_or_none(found.usable_bytes),
        size_or_none(found.total_bytes),
        found.error,
    )


def _partition_rows(found: LogDirectory) -> list[tuple[object, ...]]:
    return [
        (
            found.node_id,
            *where,
            size_or_none(each.size_bytes),
            None if each.error else each.offset_lag,
            each.error,
        )
        for where, each in found.partitions.items()
    ]


def _config_json(
    answer: BrokerAnswer[dict[str, ConfigValue]],
    shown: list[tuple[BrokerAnswer[dict[str, ConfigValue]], str, ConfigValue]],
) -> dict[str, object]:
    return {
        "node_id": answer.broker.node_id,
        "error": answer.error,
        "configs": {
            name: {
                "value": entry.value,
                "source": entry.source,
                "read_only": entry.is_read_only,
                "doc": entry.doc,
            }
            for broker, name, entry in shown
            if broker is answer
        },
    }


def _logs_json(answer: BrokerAnswer[list[LogDirectory]]) -> dict[str, object]:
    return {
        "node_id": answer.broker.node_id,
        "error": answer.error,
        "directories": [
            {
                "path": found.path,
                "error": _text(found.error),
                "total_bytes": size_or_none(found.total_bytes),
                "free_bytes": size_or_none(found.usable_bytes),
                "partitions": [
                    {
                        "topic": where.topic,
                        "partition": where.partition,
                        "size_bytes": size_or_none(each.size_bytes),
                        "offset_lag": None if each.error else each.offset_lag,
                        "error": _text(each.error),
                    }
                    for where, each in found.partitions.items()
                ],
            }
            for found in answer.value or ()
        ],
    }


def _text(error: BrokerError | None) -> str | None:
    return None if error is None else str(error)
