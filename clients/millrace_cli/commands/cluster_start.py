"""`millrace cluster start`: a cluster of broker processes on this machine.

Owns the flags and the output. `local_cluster` runs the processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import CommandError, Exit, ended, run, tell
from millrace_cli.local_cluster.layout import BROKERS_MAX

if TYPE_CHECKING:
    from millrace_cli.local_cluster.cluster import LocalCluster


def start(
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=BROKERS_MAX,
            help="Brokers of a new cluster: 3 survive the loss of one, 5 of two.  [default: 3]",
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the cluster; created if missing.")
    ] = Path("millrace-cluster"),
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="First port of a new cluster, which takes two for each broker; 0: any.  "
            "[default: 9092]",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of each broker, a TOML file.")
    ] = None,
) -> None:
    """Run a cluster on this machine until SIGTERM or ^C.

    Each broker is a process of `millrace serve` with its data in DIR/broker-N and its log in
    DIR/broker-N.log. Prints `listening on HOST:PORT,...`, the value of --servers, when all brokers
    are in service. Brokers and ports of a cluster stay as they were when it was started first.

    When a broker ends by itself, or is killed, the others go on; a line on stderr tells how to
    start it again. At the end the brokers are stopped one after the other. A second signal kills
    them.
    """
    run(_start(data, brokers, port, config))


async def _start(path: Path, brokers: int | None, port: int | None, config: Path | None) -> Exit:
    from millrace_cli.local_cluster.cluster import LocalCluster, describe_end
    from millrace_cli.local_cluster.directory import ClusterDirectory, LocalClusterError

    try:
        directory = ClusterDirectory.open(path, brokers=brokers, port=port)
    except LocalClusterError as error:
        return ended(error.code, error)
    flags = () if config is None else ("--config", str(config))
    cluster = LocalCluster(directory, flags=flags, on_end=lambda broker: tell(describe_end(broker)))
    try:
        return await _run(cluster)
    except LocalClusterError as error:
        return ended(error.code, error)
    finally:
        directory.release()


async def _run(cluster: LocalCluster) -> Exit:
    import asyncio

    from millrace_cli.interruption import finish

    try:
        await cluster.start()
        for broker in cluster.brokers:
            tell(
                f"broker {broker.node_id}: {broker.server}, process {broker.pid}, log {broker.log}"
            )
        print(f"listening on {cluster.servers}", flush=True)
        await cluster.wait()
        raise CommandError("no broker is left")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
    finally:
        stopping = asyncio.create_task(cluster.stop())
        await finish(stopping, within_s=cluster.stop_s, waits_for=lambda: "the brokers to stop")
    return Exit.OK if stopping.result() else Exit.REFUSED
