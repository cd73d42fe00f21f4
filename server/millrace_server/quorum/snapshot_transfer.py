"""A snapshot of the metadata on its way from the leader to a follower that is far behind (KIP-630).

The parts are put together in memory and checked before a file has the snapshot's name. A snapshot
takes some 100 bytes for each partition of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from millrace_server.api_error import ApiError
from millrace_server.peers.calls import Channel, PeerCalls, refusal
from millrace_server.raft.messages import SnapshotId

PART_BYTES = 4 << 20
SNAPSHOT_BYTES_MAX = 1 << 30
"""A larger one is refused: it would be of a cluster of ten million partitions."""
PART_TIMEOUT_MS = 10_000


async def fetch_snapshot(peers: PeerCalls, leader_id: int, snapshot: SnapshotId) -> bytes:
    """All bytes of a snapshot of the leader. Raises `PeerUnreachable` and `ApiError`."""
    parts: list[bytes] = []
    position = 0
    while True:
        request = FetchSnapshotRequest(snapshot.end_offset, snapshot.epoch, position, PART_BYTES)
        response = await peers.call(
            leader_id,
            Channel.CONTROL,
            request,
            FetchSnapshotResponse,
            timeout_ms=PART_TIMEOUT_MS,
        )
        if response.error_code != ErrorCode.NONE:
            raise refusal(response.error_code, response.error_message)
        parts.append(bytes(response.data))
        position += len(response.data)
        if position >= response.size:
            return b"".join(parts)
        if not response.data or response.size > SNAPSHOT_BYTES_MAX:
            raise ApiError(
                ErrorCode.POSITION_OUT_OF_RANGE,
                f"The snapshot has {response.size} bytes and the leader sends none from "
                f"{position} on",
            )


def part_of(
    snapshot: SnapshotId, read: Callable[[], bytes | None], *, position: int, max_bytes: int
) -> tuple[int, bytes]:
    """The size of a snapshot, and a part of it. Blocking; raises `ApiError` and `OSError`."""
    data = read()
    if data is None:
        raise ApiError(
            ErrorCode.SNAPSHOT_NOT_FOUND,
            f"There is no snapshot that ends at offset {snapshot.end_offset} of epoch "
            f"{snapshot.epoch} any more; fetch from the metadata log again",
        )
    if not 0 <= position <= len(data):
        raise ApiError(
            ErrorCode.POSITION_OUT_OF_RANGE,
            f"The snapshot has {len(data)} bytes and was asked for from {position} on",
        )
    return len(data), data[position : position + min(max_bytes, PART_BYTES)]
