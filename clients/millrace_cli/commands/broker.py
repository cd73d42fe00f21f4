"""`millrace broker`: take brokers out of a cluster.

`cluster status` shows the brokers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, run, tell
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millrace.admin import Admin
    from millrace.brokers import Reassignment, Retirement
    from millrace.records import TopicPartition

broker = typer.Typer(
    name="broker",
    help="Take brokers out of a cluster; `cluster status` shows them.",
    no_args_is_help=True,
)


@broker.callback()
def _broker() -> None:
    pass


@broker.command()
def retire(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")],
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End as soon as its replicas begin to move.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Move all replicas of a broker to the other brokers, and unregister it.

    The others get about as many replicas each, on other racks where there are some. The command
    waits for the moves and shows their progress; ^C ends the command, not the moves. A broker that
    is in service is not unregistered: stop it then, and run the command again. A broker that is
    lost can be retired if every partition has a replica elsewhere.

    Prints the broker, the replicas that it still has, and `retired`, `moving`, or `moved` where it
    is to be stopped.
    """

    async def work() -> Exit:
        from millrace.admin import Admin

        async with Admin(servers, **identity()) as admin:
            found = await admin.retire_broker(node_id)
            if not no_wait:
                found = await _retired(admin, found)
        if as_json:
            retired = found.is_retired
            print_json({"node_id": node_id, "replicas": found.replicas, "retired": retired})
        else:
            state = "retired" if found.is_retired else "moving" if found.replicas else "moved"
            show(("broker #", "replicas #", "state"), [(node_id, found.replicas, state)])
        return Exit.OK

    run(work())


async def _retired(admin: Admin, found: Retirement) -> Retirement:
    """Returns when the broker is retired, or has no replica any more and is still in service."""
    from millrace.errors import InvalidRequest

    while not found.is_retired:
        if found.replicas:
            await _wait(admin, found)
        try:
            found = await admin.retire_broker(found.node_id)
        except InvalidRequest as error:
            tell(error)
            return replace(found, replicas=0)
    return found


async def _wait(admin: Admin, retirement: Retirement) -> None:
    """Returns when the replicas that are on their way have moved."""
    from millrace_cli.replica_moves import wait_until_moved

    broker_id = retirement.node_id

    async def find() -> Mapping[TopicPartition, Reassignment]:
        ongoing = await admin.list_partition_reassignments()
        return {where: each for where, each in ongoing.items() if broker_id in each.removing}

    await wait_until_moved(
        admin, find, action=f"retiring broker {broker_id}", partitions=retirement.replicas
    )
