"""Questions of clients for an offset by time, and whether the answers were right.

Owns the rule: the first offset, in the order of offsets, whose record is not older. It is judged
at the end, against what is in the log then: offsets never change, so what was true stays true for
all that is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.sim.ledger import Ledger, Where, partition_name

Final = Mapping[int, tuple[int, int]]
"""What is in a partition in the end: offset to (timestamp, number of the record)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A question and its answer, (offset, timestamp) or None; asked at `began_s`.

    `start_offset` is where the log began after the answer was there: what is below it may have been
    removed before the broker looked.
    """

    where: Where
    time_ms: int
    answer: tuple[int, int] | None
    began_s: float
    life: int
    start_offset: int


class Lookups:
    """All questions of one run."""

    def __init__(
        self, ledger: Ledger, now_s: Callable[[], float], *, may_be_late: bool = False
    ) -> None:
        """`may_be_late`: a leader that does not know of its successor may answer, and lacks what
        that one has acked."""
        self.now_s = now_s
        """The true time, by which acks and questions are put in order."""
        self._ledger = ledger
        self._may_be_late = may_be_late
        self._lookups: dict[Where, list[Lookup]] = {}

    def note(self, lookup: Lookup) -> None:
        """A client got an answer."""
        if lookup.life == self._ledger.lives[lookup.where]:
            self._lookups.setdefault(lookup.where, []).append(lookup)

    def check(self, where: Where, final: Final) -> Iterator[str]:
        """What is wrong with the answers about a partition, as sentences."""
        for lookup in self._lookups.get(where, ()):
            if lookup.life != self._ledger.lives[where]:
                continue
            about = f"{partition_name(where)}: asked for {lookup.time_ms}, "
            if lookup.answer is None:
                if not self._may_be_late:
                    yield from (about + text for text in self._missed(lookup, final))
                continue
            offset, timestamp_ms = lookup.answer
            if timestamp_ms < lookup.time_ms:
                yield f"{about}was told offset {offset} with {timestamp_ms}"
            elif offset in final and final[offset][0] != timestamp_ms:
                yield f"{about}was told {timestamp_ms} of offset {offset}: it is {final[offset][0]}"
            elif any(
                final[earlier][0] >= lookup.time_ms
                for earlier in range(lookup.start_offset, offset)
                if earlier in final
            ):
                yield f"{about}was told offset {offset}, and one before it is as late"

    def _missed(self, lookup: Lookup, final: Final) -> Iterator[str]:
        for offset, (timestamp_ms, number) in final.items():
            if timestamp_ms < lookup.time_ms or offset < lookup.start_offset:
                continue
            written = self._ledger.written[number]
            if written.is_acked_with_offset and written.acked_s < lookup.began_s:
                yield f"was told of none, and offset {offset} has {timestamp_ms}"
                return
