"""`millrace topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import Exit, confirm, run
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.admin import Admin, TopicDescription

topic = typer.Typer(
    name="topic", help="Create, list, describe, alter and delete topics.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Topic name.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@topic.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="Partitions; by default, the broker's setting."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(help="Replicas of each partition; by default, the broker's setting."),
    ] = None,
    config: Config = None,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Create a topic. Prints its name and number of partitions."""
    configs = _configs(config)

    async def work() -> Exit:
        async with _admin(servers) as admin:
            count = await admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
        show(("topic", "partitions #"), [(name, count)])
        return Exit.OK

    run(work())


@topic.command("list")
def list_(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the broker's own topics.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """List topics: name, partitions, replication factor."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            names = await admin.list_topics(internal=internal)
            # A topic may have been deleted between the two requests.
            found = [
                outcome.value
                for outcome in await admin.describe_topics(names)
                if outcome.value is not None
            ]
        rows = [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in found]
        if as_json:
            print(json.dumps([dict(zip(_LIST_KEYS, row, strict=True)) for row in rows]))
        else:
            show(("topic", "partitions #", "replication factor #"), rows)
        return Exit.OK

    run(work())


@topic.command()
def describe(name: Name, as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """Show a topic's partitions with their offsets, and its settings.

    In a pipe, a line begins with `partition` (number, leader, replicas, isr, start offset, end
    offset) or with `config` (name, value, and whether `topic` or `default` sets it).
    """

    async def work() -> Exit:
        async with _admin(servers) as admin:
            found = await admin.describe_topic(name)
            configs = await admin.describe_configs(name)
            starts = await _offsets(admin, found, "earliest")
            ends = await _offsets(admin, found, "latest")
        partitions = [
            (
                p.partition,
                p.leader,
                ",".join(map(str, p.replicas)),
                ",".join(map(str, p.isr)),
                starts.get(p.partition),
                ends.get(p.partition),
            )
            for p in found.partitions
        ]
        settings = [
            (key, entry.value, "default" if entry.is_default else "topic")
            for key, entry in configs.items()
        ]
        if as_json:
            described = {
                "topic": found.name,
                "topic_id": str(found.topic_id),
                "internal": found.is_internal,
                "partitions": [
                    {
                        "partition": p.partition,
                        "leader": p.leader,
                        "leader_epoch": p.leader_epoch,
                        "replicas": p.replicas,
                        "isr": p.isr,
                        "start_offset": starts.get(p.partition),
                        "end_offset": ends.get(p.partition),
                    }
                    for p in found.partitions
                ],
                "configs": {
                    key: {"value": value, "source": source} for key, value, source in settings
                },
            }
            print(json.dumps(described))
            return Exit.OK
        show(_PARTITION_COLUMNS, partitions, title=f"{name}: partitions", kind="partition")
        show(("setting", "value", "set by"), settings, title=f"{name}: settings", kind="config")
        return Exit.OK

    run(work())


@topic.command()
def alter(
    name: Name,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Reset to the default; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            help="New number of partitions. Keys may move.",
        ),
    ] = None,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Change a topic's settings, all or none, and then its number of partitions."""
    configs = _configs(config) | dict.fromkeys(delete_config or ())
    if not configs and partitions is None:
        raise typer.BadParameter("nothing to change: give --config, --delete-config, --partitions")

    async def work() -> Exit:
        async with _admin(servers) as admin:
            if configs:
                await admin.alter_configs(name, configs)
            if partitions is not None:
                await admin.create_partitions(name, partitions)
        return Exit.OK

    run(work())


@topic.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete a topic with all its records."""

    async def known() -> Exit:
        async with _admin(servers) as admin:
            await admin.describe_topic(name)
        return Exit.OK

    if not yes:
        confirm(f"Delete topic {name} with all its records?", known())

    async def work() -> Exit:
        async with _admin(servers) as admin:
            await admin.delete_topic(name)
        return Exit.OK

    run(work())


_LIST_KEYS = ("topic", "partitions", "replication_factor")
_PARTITION_COLUMNS = (
    "partition #",
    "leader #",
    "replicas",
    "isr",
    "start offset #",
    "end offset #",
)


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, client_id="millrace-cli")


def _configs(pairs: list[str] | None) -> dict[str, str | None]:
    configs: dict[str, str | None] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--config {pair!r} is not KEY=VALUE")
        configs[key.strip()] = value
    return configs


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)


async def _offsets(admin: Admin, topic: TopicDescription, end: str) -> dict[int, int]:
    """One end of each partition that has a leader."""
    asked = {(topic.name, p.partition): end for p in topic.partitions if p.leader is not None}
    answers = await admin.list_offsets(asked)
    return {where.partition: answer.offset for where, answer in answers.items()}
