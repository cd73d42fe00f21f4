"""How far compaction has cleaned a log, as the checkpoint keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_HORIZON: Final = -1


@dataclass(frozen=True, slots=True)
class Cleanliness:
    """How far a log is clean, as its checkpoint says.

    No key occurs twice before `end_offset`. The first tombstone there may go at `horizon_ms`,
    since the epoch, -1 if there is none.
    """

    end_offset: int
    horizon_ms: int = NO_HORIZON

    def has_ripe_tombstones(self, now_ms: int) -> bool:
        """Whether a tombstone may go by now."""
        return NO_HORIZON < self.horizon_ms <= now_ms


NOT_CLEAN: Final = Cleanliness(0)
