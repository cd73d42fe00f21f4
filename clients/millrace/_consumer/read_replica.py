"""Which replica a consumer reads a partition from (KIP-392).

The leader tells of a replica in the client's rack. It is read until it refuses, or its connection
fails, and for `READ_MS` at most: then the leader is asked again, which knows who is in sync.
"""

from __future__ import annotations

READ_MS = 30_000
"""How long a replica that is silent, because it is cut off from its leader, may be waited for."""
SHUNNED_MS = 10_000
"""How long the leader alone is read after a replica has failed."""
NO_REPLICA = -1


class ReadReplica:
    """The replica that one partition is read from, if it is not the leader."""

    __slots__ = ("_node_id", "_shunned_until_ms", "_until_ms")

    def __init__(self) -> None:
        self._node_id = NO_REPLICA
        self._until_ms = 0
        self._shunned_until_ms = 0

    def choose(self, leader_id: int, now_ms: int) -> int:
        """The broker to read from now."""
        if self._node_id != NO_REPLICA and now_ms >= self._until_ms:
            self._node_id = NO_REPLICA
        return leader_id if self._node_id == NO_REPLICA else self._node_id

    def is_at(self, node_id: int) -> bool:
        """Whether a broker was read as a replica, and not as the leader."""
        return node_id == self._node_id

    def prefer(self, node_id: int, now_ms: int) -> None:
        """The leader prefers that a broker is read; -1: itself."""
        if node_id != NO_REPLICA and now_ms >= self._shunned_until_ms:
            self._node_id, self._until_ms = node_id, now_ms + READ_MS

    def failed(self, now_ms: int) -> None:
        """The replica does not serve the partition: the leader does."""
        self._node_id = NO_REPLICA
        self._shunned_until_ms = now_ms + SHUNNED_MS
