"""`millrace topic describe`: the partitions and the settings of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, run
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show, size_or_none

if TYPE_CHECKING:
    from millrace.admin import Admin, TopicDescription
    from millrace.brokers import ConfigValue

_PARTITION_COLUMNS = (
    "partition #",
    "leader #",
    "replicas",
    "isr",
    "start offset #",
    "end offset #",
    "size #",
)


def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Topic name.")],
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show a topic's partitions with their offsets and bytes on disk, and its settings.

    In a pipe, a line begins with `partition` (number, leader, replicas, isr, start offset, end
    offset, bytes of all replicas) or with `config` (name, value, and whether `topic`, `broker` or
    `default` sets it).
    """

    async def work() -> Exit:
        from millrace.admin import Admin
        from millrace_cli.topic_sizes import partition_sizes

        async with Admin(servers, **identity()) as admin:
            found = await admin.describe_topic(name)
            configs = await admin.describe_configs(name)
            starts = await _offsets(admin, found, "earliest")
            ends = await _offsets(admin, found, "latest")
            found_sizes = await partition_sizes(admin, [found])
        sizes = {where.partition: size for where, size in found_sizes.items()}
        if as_json:
            print_json(_as_json(found, configs, starts, ends, sizes))
            return Exit.OK
        rows = [
            (
                each.partition,
                each.leader,
                ",".join(map(str, each.replicas)),
                ",".join(map(str, each.isr)),
                starts.get(each.partition),
                ends.get(each.partition),
                size_or_none(sizes[each.partition]),
            )
            for each in found.partitions
        ]
        settings = [(key, entry.value, entry.source) for key, entry in configs.items()]
        show(_PARTITION_COLUMNS, rows, title=f"{name}: partitions", kind="partition")
        show(("setting", "value", "set by"), settings, title=f"{name}: settings", kind="config")
        return Exit.OK

    run(work())


async def _offsets(admin: Admin, topic: TopicDescription, end: str) -> dict[int, int]:
    """One end of each partition that has a leader."""
    asked = {(topic.name, p.partition): end for p in topic.partitions if p.leader is not None}
    answers = await admin.list_offsets(asked)
    return {where.partition: answer.offset for where, answer in answers.items()}


def _as_json(
    found: TopicDescription,
    configs: dict[str, ConfigValue],
    starts: dict[int, int],
    ends: dict[int, int],
    sizes: dict[int, int | None],
) -> dict[str, object]:
    return {
        "topic": found.name,
        "topic_id": str(found.topic_id),
        "internal": found.is_internal,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "start_offset": starts.get(each.partition),
                "end_offset": ends.get(each.partition),
                "size_bytes": sizes[each.partition],
            }
            for each in found.partitions
        ],
        "configs": {
            key: {"value": entry.value, "source": entry.source} for key, entry in configs.items()
        },
    }
