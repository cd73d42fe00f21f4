"""What clients sent, were told and read in a run, and whether that can be true.

Owns the checks. Knows no simulation: it is told of operations and of the final content of each
partition. `check` is the one place where verdicts on a history are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Where = tuple[str, int]
Found = list[tuple[int, bytes]]
"""Offsets and values, in the order in which they were read."""
SHOWN_MAX = 3


@dataclass(slots=True)
class Sent:
    """One record: the `number`th of its producer. `offset` is None until it was acked, and where
    it never was, nobody knows whether it was written."""

    value: bytes
    where: Where
    producer: str
    number: int
    sent_s: float
    offset: int | None = None


@dataclass(slots=True)
class Promise:
    """What holds for the records of a topic.

    `kept_since_s`: what was sent before it may be lost, even if it was acked or read.
    """

    idempotent: bool
    kept_since_s: float = float("-inf")


@dataclass(slots=True)
class Ledger:
    """The whole history of one run."""

    promises: dict[str, Promise] = field(default_factory=dict)
    sent: dict[bytes, Sent] = field(default_factory=dict)
    readers: dict[str, dict[Where, Found]] = field(default_factory=dict)

    def note_sent(self, sent: Sent) -> None:
        """A record was handed to a producer; its value is unique."""
        assert sent.value not in self.sent
        self.sent[sent.value] = sent

    def note_read(self, reader: str, where: Where, offset: int, value: bytes) -> None:
        """A consumer that began at the beginning handed a record out."""
        self.readers.setdefault(reader, {}).setdefault(where, []).append((offset, value))

    @property
    def acked_count(self) -> int:
        return sum(sent.offset is not None for sent in self.sent.values())

    def check(self, final: dict[Where, Found]) -> list[str]:
        """Every way in which the history contradicts what was promised, as sentences."""
        sentences: list[str] = []
        for where, found in sorted(final.items()):
            for problems in (
                self._content(where, found),
                self._losses(where, dict(found)),
                self._order(where, found),
                self._readings(where, dict(found)),
            ):
                sentences += [f"{where[0]}-{where[1]}: {text}" for text in first(problems)]
        return sentences

    def _content(self, where: Where, found: Found) -> Iterator[str]:
        for expected, (offset, value) in enumerate(found):
            if offset != expected:
                yield f"offset {offset} follows {expected - 1}"
                return
            sent = self.sent.get(value)
            if sent is None or sent.where != where:
                yield f"offset {offset} holds {shown(value)}, which nobody sent here"

    def _losses(self, where: Where, content: dict[int, bytes]) -> Iterator[str]:
        since_s = self.promises[where[0]].kept_since_s
        for sent in self.sent.values():
            if sent.where != where or sent.offset is None or sent.sent_s <= since_s:
                continue
            if content.get(sent.offset) != sent.value:
                there = shown(content.get(sent.offset))
                yield f"{shown(sent.value)} was acked as offset {sent.offset}, where {there} is"

    def _order(self, where: Where, found: Found) -> Iterator[str]:
        if not self.promises[where[0]].idempotent:
            return
        last: dict[str, int] = {}
        for offset, value in found:
            sent = self.sent.get(value)
            if sent is None:
                continue
            before = last.get(sent.producer, -1)
            if sent.number <= before:
                word = "again" if sent.number == before else f"after number {before}"
                yield f"offset {offset} holds {shown(value)} {word}"
            last[sent.producer] = max(before, sent.number)

    def _readings(self, where: Where, content: dict[int, bytes]) -> Iterator[str]:
        since_s = self.promises[where[0]].kept_since_s
        for reader, partitions in self.readers.items():
            expected = 0
            for offset, value in partitions.get(where, ()):
                if offset != expected:
                    yield f"{reader} was given offset {offset} and not {expected}"
                expected = offset + 1
                sent = self.sent.get(value)
                is_kept = sent is None or sent.sent_s > since_s
                if is_kept and content.get(offset) != value:
                    yield (
                        f"{reader} read {shown(value)} at offset {offset}, where in the end "
                        f"{shown(content.get(offset))} is"
                    )


def first(problems: Iterator[str]) -> list[str]:
    """A few of them: one cause often has a thousand effects."""
    found = list(problems)
    if len(found) > SHOWN_MAX:
        return [*found[:SHOWN_MAX], f"... and {len(found) - SHOWN_MAX} more like the last"]
    return found


def shown(value: bytes | None) -> str:
    """The beginning of a value, without its padding."""
    return "nothing" if value is None else value[:40].rstrip(b".").decode(errors="replace")
