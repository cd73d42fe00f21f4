"""`millrace cluster add-voter` and `remove-voter`: which brokers vote in the metadata quorum."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, run
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import DEFAULT_SERVERS, Servers

NodeId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        metavar="UUID",
        help="The directory id in its meta.properties.  [default: the one that is known]",
    ),
]


def add_voter(
    node_id: NodeId,
    directory: Directory = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Give a broker a vote in the metadata quorum.

    The broker is in service: started with the same --quorum as the others, and --broker-listen.
    An odd number of voters is best. Prints nothing; with --json, the broker.
    """
    _change(node_id, directory, as_json, servers, is_added=True)


def remove_voter(
    node_id: NodeId,
    directory: Directory = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Take a broker's vote in the metadata quorum.

    The broker goes on without a vote; it may be out of service, or lost. Remove one voter at a
    time. Prints nothing; with --json, the broker.
    """
    _change(node_id, directory, as_json, servers, is_added=False)


def _change(
    node_id: int, directory: str | None, as_json: bool, servers: str, *, is_added: bool
) -> None:
    try:
        directory_id = None if directory is None else uuid.UUID(directory)
    except ValueError:
        raise typer.BadParameter(f"--directory: {directory!r} is no UUID") from None

    async def work() -> Exit:
        from millrace.admin import Admin

        async with Admin(servers, **identity()) as admin:
            change = admin.add_voter if is_added else admin.remove_voter
            await change(node_id, directory_id=directory_id)
        if as_json:
            print_json({"node_id": node_id, "voter": is_added})
        return Exit.OK

    run(work())
