"""What a replica must not forget: its epoch, its vote in that epoch, and the leader it knows.

A replica that forgets its vote may vote twice in one epoch, and two leaders may follow. So the file
is durable before a message says what it says. Kafka: `quorum-state`.

    +----------------+----------------------------------------------------+
    | the 12 bytes   | epoch | leader id | voted id | voted directory id   |   big-endian
    | of checkpoint_ | i32   | i32       | i32      | 16 bytes             |   -1: none
    | file           |       |           |          |                      |   MRQS, version 1
    +----------------+----------------------------------------------------+
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Final

from millrace_server.log.checkpoint_file import CheckpointFormat
from millrace_server.raft.voters import ReplicaKey

ELECTION_STATE_NAME: Final = "quorum-state"
_FORMAT: Final = CheckpointFormat(b"MRQS", 1)
_BODY = struct.Struct(">iii16s")
_NONE = -1
_NO_DIRECTORY = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class ElectionState:
    """Invariant: `epoch` never falls, and `voted` never changes within an epoch."""

    epoch: int = 0
    voted: ReplicaKey | None = None
    leader_id: int | None = None

    def encode(self) -> bytes:
        """Returns the file's content."""
        voted_id, directory_id = self.voted or (_NONE, _NO_DIRECTORY)
        leader_id = _NONE if self.leader_id is None else self.leader_id
        return _FORMAT.encode(_BODY.pack(self.epoch, leader_id, voted_id, directory_id.bytes))

    @classmethod
    def decode(cls, data: bytes) -> ElectionState | None:
        """Reads a file's content; None if it is not a whole file of this version."""
        content = _FORMAT.decode(data)
        if content is None or len(content.body) != _BODY.size:
            return None
        epoch, leader_id, voted_id, directory_id = _BODY.unpack(content.body)
        voted = None if voted_id == _NONE else ReplicaKey(voted_id, uuid.UUID(bytes=directory_id))
        return cls(epoch, voted, None if leader_id == _NONE else leader_id)
