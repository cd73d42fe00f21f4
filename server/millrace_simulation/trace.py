"""What happened in a run, in order: lines for people, a digest to compare two runs, and counts."""

from __future__ import annotations

import hashlib
import marshal
import zlib
from collections import Counter
from collections.abc import Callable

from millrace_simulation.clock import TrueTime
from millrace_simulation.transport import Mark

_LINES_HASHED = 1024
"""At once: each line by itself costs more."""


class Trace:
    """What happened, in order, as lines for people and a digest for comparing two runs."""

    def __init__(self, true: TrueTime, *, show: Callable[[str], object] | None) -> None:
        self._true = true
        self._show = show
        self._hash = hashlib.blake2b(digest_size=12)
        self._unhashed: list[object] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    @property
    def digest(self) -> str:
        self._take_in()
        return self._hash.hexdigest()

    def note(self, line: str) -> None:
        """Something happened."""
        unhashed = self._unhashed
        unhashed += (self._true.now_s, line)
        if len(unhashed) >= _LINES_HASHED:
            self._take_in()
        if self._show is not None:
            self._show(f"{self._true.now_s:12.6f} {line}")

    def note_arrival(self, end: int, source: str, target: str, item: bytes | Mark) -> None:
        """Bytes, or the end of them, came through the network."""
        unhashed = self._unhashed
        if isinstance(item, Mark):
            unhashed += (self._true.now_s, end, item.name)
        else:
            unhashed += (self._true.now_s, end, len(item))
            self._hash.update(item)
        if len(unhashed) >= _LINES_HASHED:
            self._take_in()
        if self._show is not None:
            what = item.name if isinstance(item, Mark) else f"{len(item)} {zlib.crc32(item):08x}"
            self._show(f"{self._true.now_s:12.6f} #{end} {source} > {target} {what}")

    def _take_in(self) -> None:
        # Later versions mark what is interned or referenced twice, which differs by run.
        self._hash.update(marshal.dumps(self._unhashed, 2))
        self._unhashed.clear()

    def sometimes(self, what: str, count: int = 1) -> None:
        """Something happened that a set of runs must meet now and then."""
        self.counts[what] += count

    def told(self, name: str, error: Exception) -> None:
        """A client was told of an error that it can live with."""
        self.note(f"{name} got {type(error).__name__}: {error}")
        self.sometimes("a client was told of an error")

    def violation(self, sentence: str) -> None:
        """Something happened that must not; kept once, however often it did."""
        if sentence not in self.violations:
            self.violations.append(sentence)
        self.note(f"VIOLATION {sentence}")
