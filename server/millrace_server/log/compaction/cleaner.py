"""Compaction as the log sees it: a pass is begun, its swaps are taken, and its end is noted.

Owns what a pass may clean, and that segments are swapped only in a log that takes changes. Refuses
to know when a pass runs, and its steps: those are `cleaning`'s. Source: Kafka's `LogCleaner`.
"""

from __future__ import annotations

from millrace_server.log.compaction.cleaning import Cleaning, Swap
from millrace_server.log.compaction.plan import plan
from millrace_server.log.durability import Durability
from millrace_server.log.state import LogState


class LogCleaner:
    """Begins one pass at a time over one log."""

    __slots__ = ("_durability", "_state")

    def __init__(self, state: LogState, durability: Durability) -> None:
        self._state = state
        self._durability = durability

    def begin(self, now_ms: int, *, high_watermark: int, keys_max: int) -> Cleaning | None:
        """Returns a pass over the closed segments of the log, None if none is due.

        Each `Swap` that its steps return goes to `swap`, and after the last step the pass to
        `finish`; or it is closed.
        """
        state = self._state
        if not state.config.compacts or not state.takes_changes:
            return None
        due = plan(
            state.chain.segments[:-1],
            state.config,
            state.cleanliness,
            start_offset=state.start_offset,
            limit_offset=self._durability.settled_offset(high_watermark),
            now_ms=now_ms,
        )
        if due is None:
            return None
        return Cleaning(
            state.disk,
            state.directory,
            due,
            state.config,
            now_ms=now_ms,
            keys_max=keys_max,
            producer_ends=state.producers.ends(),
        )

    def swap(self, swap: Swap) -> bool:
        """Puts cleaned segments in the place of those they were made of.

        Readers go on in what they hold. The next flush names the cleaned ones in the checkpoint,
        and only then deletes the others. False if retention has taken one of these meanwhile, or
        the log takes no changes any more; the cleaned ones are to be discarded then.
        """
        if not self._state.takes_changes:
            return False
        if not self._state.chain.replace(swap.replaced, swap.cleaned):
            return False
        self._durability.note_removed(swap.replaced)
        return True

    def finish(self, cleaning: Cleaning) -> None:
        """Notes how far the log is clean, after the last step of a pass."""
        self._state.cleanliness = cleaning.cleanliness
        self._durability.note_change()
