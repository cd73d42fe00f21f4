"""`millrace cluster status`: brokers, quorum, and the partitions that are not healthy.

Owns the flags, the questions to the brokers, and the output. `cluster_state` says what is healthy.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, run
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import is_terminal, rendered, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millrace.admin import Admin, TopicDescription
    from millrace_cli.cluster_state import ClusterState

TIMEOUT_MS = 5_000
"""For one question. A broker that hangs must not hide what the others say."""
TOPICS_OF_A_REQUEST = 1_000
CONFIGS_AT_ONCE = 20
PARTITIONS_SHOWN_MAX = 20
"""Unhealthy partitions in a view for people; all are in the output of a pipe."""
_BROKER_COLUMNS = ("broker #", "address", "rack", "state", "leaders #", "in sync #", "replicas #")
_QUORUM_COLUMNS = ("broker #", "role", "end offset #", "lag #", "fetched ms #", "caught up ms #")
_PARTITION_COLUMNS = ("topic", "partition #", "fault", "leader #", "replicas", "isr", "min isr #")


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it anew every --interval seconds, until ^C.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="See --watch.")
    ] = 1.0,
    check: Annotated[
        bool, typer.Option("--check", help="End with exit code 1 unless all is healthy.")
    ] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show brokers, metadata quorum and unhealthy partitions.

    All is healthy if there is an active controller, every broker is in service, and every replica
    is in sync. With --json and --watch, each line has the state of one time.

    \b
    In a pipe, a line begins with
      cluster    `healthy`, or one thing that is wrong
      broker     id, address, rack, `in service` or `fenced`, leaders, in-sync replicas, replicas
      quorum     broker, `leader`, `voter` or `observer`, end offset, lag behind the leader,
                 ms since its last fetch, ms since it was caught up
      partition  topic, number, what is wrong, leader, replicas, isr, min.insync.replicas
    """
    if watch and check:
        raise typer.BadParameter("it needs an end, and --watch has none", param_hint="--check")

    async def work() -> Exit:
        from millrace.admin import Admin

        async with Admin(servers, **(identity() | {"request_timeout_ms": TIMEOUT_MS})) as admin:
            if watch:
                await _watch(admin, interval_s, as_json=as_json)
            found = await _state(admin)
        _print(found, as_json=as_json)
        return Exit.REFUSED if check and found.problems else Exit.OK

    run(work())


async def _state(admin: Admin) -> ClusterState:
    import asyncio

    from millrace_cli.cluster_state import MIN_ISR, cluster_state, under_replicated

    quorum = await admin.describe_quorum()
    topics = await _topics(admin)
    cluster = await admin.describe_cluster()
    min_isr: dict[str, int] = {}
    names = under_replicated(topics)
    for start in range(0, len(names), CONFIGS_AT_ONCE):
        some = names[start : start + CONFIGS_AT_ONCE]
        configs = await asyncio.gather(*map(admin.describe_configs, some), return_exceptions=True)
        for name, found in zip(some, configs, strict=True):
            # A topic may have been deleted meanwhile.
            if not isinstance(found, BaseException):
                min_isr[name] = int(found[MIN_ISR].value)
    return cluster_state(cluster, quorum, topics, min_isr=min_isr)


async def _topics(admin: Admin) -> list[TopicDescription]:
    names = await admin.list_topics(internal=True)
    found: list[TopicDescription] = []
    for start in range(0, len(names), TOPICS_OF_A_REQUEST):
        outcomes = await admin.describe_topics(names[start : start + TOPICS_OF_A_REQUEST])
        found += [outcome.value for outcome in outcomes if outcome.value is not None]
    return found


async def _watch(admin: Admin, interval_s: float, *, as_json: bool) -> None:
    """Shows the state until the command is interrupted."""
    import asyncio

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from millrace.errors import MillraceError

    if as_json or not is_terminal():
        while True:
            _print(await _state(admin), as_json=as_json)
            sys.stdout.flush()
            await asyncio.sleep(interval_s)
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                view = _view(await _state(admin), console.width)
            except MillraceError as error:
                view = Text(f"no broker answers: {error}", style="bold red")
            live.update(view, refresh=True)
            await asyncio.sleep(interval_s)


def _print(found: ClusterState, *, as_json: bool) -> None:
    from millrace_cli.cluster_state import as_json as json_of

    if as_json:
        print_json(json_of(found))
    elif is_terminal():
        from rich.console import Console

        console = Console()
        console.print(_view(found, console.width))
    else:
        for problem in found.problems or ["healthy"]:
            show((), [(problem,)], kind="cluster")
        for columns, rows, _, kind in _tables(found):
            show(columns, rows, kind=kind)


Rows = list[tuple[object, ...]]


def _tables(found: ClusterState) -> list[tuple[tuple[str, ...], Rows, str, str]]:
    """Columns, rows, title and kind of each table."""
    quorum = found.quorum
    brokers: Rows = [
        (
            each.node_id,
            each.address,
            each.rack,
            "fenced" if each.is_fenced else "in service",
            *(each.leaders, each.in_sync, each.replicas),
        )
        for each in found.brokers
    ]
    replicas: Rows = [
        (
            each.node_id,
            "leader" if each.node_id == quorum.leader else "voter" if each.is_voter else "observer",
            *(each.end_offset, quorum.lag(each), each.fetched_ms, each.caught_up_ms),
        )
        for each in quorum.replicas
    ]
    partitions: Rows = [
        (
            *each.where,
            each.faults[0].value,
            each.leader,
            *(_ids(each.replicas), _ids(each.isr), each.min_isr),
        )
        for each in found.unhealthy
    ]
    title = (
        f"metadata quorum: epoch {quorum.leader_epoch}, high watermark "
        f"{'-' if quorum.high_watermark is None else quorum.high_watermark}"
    )
    return [
        (_BROKER_COLUMNS, brokers, f"cluster {found.cluster_id}", "broker"),
        (_QUORUM_COLUMNS, replicas, title, "quorum"),
        (_PARTITION_COLUMNS, partitions, "unhealthy partitions", "partition"),
    ]


def _view(found: ClusterState, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for columns, rows, title, kind in _tables(found):
        if rows:
            shown = rows[:PARTITIONS_SHOWN_MAX] if kind == "partition" else rows
            parts.append(rendered(columns, shown, title=title, width=width))
            if len(shown) < len(rows):
                parts.append(Text(f"and {len(rows) - len(shown):,} more\n"))
    controller = found.quorum.leader
    summary = (
        f"{found.partitions:,} partitions; active controller: "
        f"{'none' if controller is None else f'broker {controller}'}"
    )
    if found.problems:
        parts.append(Text(f"{'; '.join(found.problems)}; {summary}", style="bold red"))
    else:
        parts.append(Text(f"healthy: {summary}", style="green"))
    return Group(*parts)


def _ids(nodes: tuple[int, ...]) -> str | None:
    return ",".join(map(str, nodes)) or None
