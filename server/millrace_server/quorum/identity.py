"""The identity of a data directory: which broker of which cluster it belongs to.

    meta.properties            text, as in Kafka

    version=1
    node.id=1
    directory.id=6f2c...       made once: a broker with an empty directory is another replica, which
                               has forgotten its votes
    cluster.id=0b1e...         absent until the broker knows its cluster

A directory of a broker that wrote no such file gets one with its first start.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint_file import read_file, replace_file

IDENTITY_NAME: Final = "meta.properties"
_VERSION = "1"


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """`cluster_id` is None until the broker has learned it."""

    node_id: int
    directory_id: uuid.UUID
    cluster_id: uuid.UUID | None = None

    def check_node(self, node_id: int) -> None:
        """Raises `ApiError` unless the directory belongs to the broker `node_id`."""
        if self.node_id != node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The data directory belongs to broker {self.node_id} and node_id is {node_id}; "
                "set node_id to that of the data directory, or use another data directory",
            )

    def encode(self) -> bytes:
        """Returns the file's content."""
        lines = [
            f"version={_VERSION}",
            f"node.id={self.node_id}",
            f"directory.id={self.directory_id}",
        ]
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        return "".join(f"{line}\n" for line in lines).encode()


def read_identity(disk: Disk) -> DirectoryIdentity | None:
    """The identity of the data directory, None if it has none. Blocking.

    Raises `ApiError` for a file that cannot be understood, and `OSError`.
    """
    data = read_file(disk, IDENTITY_NAME)
    if data is None:
        return None
    try:
        pairs = (line.split("=", 1) for line in data.decode().splitlines() if line.strip())
        values = {name.strip(): value.strip() for name, value in pairs}
        if values["version"] != _VERSION:
            raise ValueError(f"version {values['version']} is not {_VERSION}")
        cluster_id = values.get("cluster.id")
        return DirectoryIdentity(
            int(values["node.id"]),
            uuid.UUID(values["directory.id"]),
            uuid.UUID(cluster_id) if cluster_id else None,
        )
    except (KeyError, ValueError) as error:
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The file {IDENTITY_NAME} of the data directory cannot be read: {error!r}; restore it "
            "from a backup, or use another data directory",
        ) from error


def identity_missing() -> ApiError:
    """Why a directory whose metadata log knows its voters does not start without its identity."""
    return ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"The data directory has a metadata log and no file {IDENTITY_NAME}; restore the file from "
        "a backup, or use an empty data directory",
    )


def write_identity(disk: Disk, identity: DirectoryIdentity) -> None:
    """Makes the identity durable. Blocking; raises `OSError`."""
    replace_file(disk, IDENTITY_NAME, identity.encode())
