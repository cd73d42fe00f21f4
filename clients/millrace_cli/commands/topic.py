"""`millrace topic`: create, list, alter and delete topics.

Owns these flags and their output. The other commands have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.client_identity import identity
from millrace_cli.commands.topic_describe import describe
from millrace_cli.commands.topic_elect_leaders import elect_leaders
from millrace_cli.commands.topic_reassign import reassign
from millrace_cli.commands.topic_trim import trim
from millrace_cli.exits import Exit, confirm, refused, run
from millrace_cli.json_output import Json, print_json, print_objects
from millrace_cli.name_patterns import check_patterns, expand, is_pattern
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show, size_or_none

if TYPE_CHECKING:
    from millrace.admin import Admin, TopicDescription, TopicOutcome

topic = typer.Typer(
    name="topic",
    help="Create, list, describe, alter, trim, move and delete topics.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Topic name.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."),
]


@topic.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Topic names.")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="Partitions; by default, the broker's setting."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas of each partition; by default, the broker's setting.",
        ),
    ] = None,
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Check, and create nothing.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Create topics. Prints the name and number of partitions of each.

    If the broker refuses one of several topics, it creates none of them.
    """
    configs = topic_configs(config)

    async def work() -> Exit:
        from millrace.admin import NewTopic

        new = [
            NewTopic(name, partitions, replication_factor, configs) for name in dict.fromkeys(names)
        ]
        async with _admin(servers) as admin:
            if len(new) > 1 or dry_run:
                outcomes = await admin.create_topics(new, validate_only=True)
                if dry_run or any(outcome.error for outcome in outcomes):
                    return _show_created(outcomes, as_json, created=False)
            return _show_created(await admin.create_topics(new), as_json, created=True)

    run(work())


@topic.command("list")
def list_(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Only these topics; ^REGEX lists the topics that match it.",
        ),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", "-i", help="Also the broker's own topics.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """List topics: name, partitions, replication factor, bytes on disk.

    The bytes are those of all replicas, compressed as they are stored; - if a broker that has one
    does not answer, or the user may not ask.
    """
    check_patterns(names or [])

    async def work() -> Exit:
        from millrace_cli.topic_sizes import partition_sizes, topic_size

        async with _admin(servers) as admin:
            is_list = not names or any(map(is_pattern, names))
            known = await admin.list_topics(internal=internal) if is_list else []
            wanted = expand(names, known, kind="topic") if names else tuple(known)
            outcomes = await admin.describe_topics(wanted)
            found = [outcome.value for outcome in outcomes if outcome.value is not None]
            sizes = await partition_sizes(admin, found)
        rows = [
            (each.name, len(each.partitions), _replication_factor(each), topic_size(each, sizes))
            for each in found
        ]
        if as_json:
            print_objects(("topic", "partitions", "replication_factor", "size_bytes"), rows)
        else:
            show(
                ("topic", "partitions #", "replicas #", "size #"),
                [(*row, size_or_none(size)) for *row, size in rows],
            )
        # A topic that is not named may have been deleted between the two requests.
        return refused(each.error for each in outcomes if each.error and each.name in (names or ()))

    run(work())


topic.command()(describe)


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
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Change a topic's settings, all or none, and then its number of partitions.

    Prints nothing; with --json, what was changed.
    """
    configs = topic_configs(config) | dict.fromkeys(delete_config or ())
    if not configs and partitions is None:
        raise typer.BadParameter("nothing to change: give --config, --delete-config, --partitions")

    async def work() -> Exit:
        async with _admin(servers) as admin:
            if configs:
                await admin.alter_configs(name, configs)
            if partitions is not None:
                await admin.create_partitions(name, partitions)
        if as_json:
            print_json({"topic": name, "configs": configs, "partitions": partitions})
        return Exit.OK

    run(work())


topic.command()(trim)
topic.command()(reassign)
topic.command()(elect_leaders)


@topic.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Topics to delete; ^REGEX deletes the topics that match it now."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Delete topics with all their records.

    If one of them is not there, none is deleted. Prints nothing; with --json, the topics.
    """
    check_patterns(names)
    found: list[str] = []

    async def find() -> Exit:
        async with _admin(servers) as admin:
            known = await admin.list_topics() if any(map(is_pattern, names)) else []
            found.extend(expand(names, known, kind="topic"))
            return refused(_errors(await admin.describe_topics(found)))

    async def work() -> Exit:
        if not found:
            code = await find()
            if code is not Exit.OK:
                return code
        async with _admin(servers) as admin:
            outcomes = await admin.delete_topics(found)
        if as_json:
            print_objects(("topic", "error"), [(each.name, _sentence(each)) for each in outcomes])
        return refused(_errors(outcomes))

    if not yes:
        confirm(lambda: _question(found), find())
    run(work())


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


def topic_configs(pairs: list[str] | None) -> dict[str, str | None]:
    """The settings that `--config` gives. Raises `typer.BadParameter`."""
    configs: dict[str, str | None] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--config {pair!r} is not KEY=VALUE")
        configs[key.strip()] = value
    return configs


def _show_created(outcomes: list[TopicOutcome[int]], as_json: bool, *, created: bool) -> Exit:
    """`created` is false after a check that creates nothing."""
    if as_json:
        print_objects(
            ("topic", "partitions", "created", "error"),
            [(o.name, o.value, created and o.error is None, _sentence(o)) for o in outcomes],
        )
    else:
        rows = [(each.name, each.value) for each in outcomes if each.error is None]
        show(("topic", "partitions #"), rows)
    return refused(_errors(outcomes))


def _errors(outcomes: Iterable[TopicOutcome[Any]]) -> list[object]:
    return [outcome.error for outcome in outcomes if outcome.error is not None]


def _sentence(outcome: TopicOutcome[Any]) -> str | None:
    return None if outcome.error is None else str(outcome.error)


def _question(names: list[str]) -> str:
    if len(names) == 1:
        return f"Delete topic {names[0]} with all its records?"
    return f"Delete {len(names)} topics with all their records: {', '.join(names)}?"


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)
