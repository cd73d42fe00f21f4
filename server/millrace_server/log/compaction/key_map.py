"""The last offset of every key in a stretch of a log: what decides which records stay.

Owns the bound on its memory. Refuses to know batches and segments. An entry takes some 140 bytes
however long its key: of a long key a SHA-256 stands in, since a shorter digest, such as Kafka's
MD5, lets a client that can make two keys collide delete the one by writing the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

_DIGEST_SIZE: Final = 32

Key = bytes | None


class KeyMap:
    """Of the keys in `[start_offset, end_offset)`, where each stands last; at most `keys_max`.

    `end_offset` moves with what is added, and stays before the first record that had no room.
    """

    __slots__ = ("_keys_max", "_last", "end_offset", "start_offset")

    def __init__(self, *, start_offset: int, keys_max: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._keys_max = keys_max
        self._last: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def add(self, keys: Sequence[Key], offsets: Sequence[int], *, next_offset: int) -> bool:
        """Takes in records in order, the last of which ends before `next_offset`.

        False if there was no room for all of them; those before `end_offset` are in then.
        """
        names = _names(keys)
        last = self._last
        if len(last) + len(names) <= self._keys_max:
            last.update(zip(names, offsets, strict=True))
            last.pop(None, None)
        else:
            for name, offset in zip(names, offsets, strict=True):
                if name is None:
                    continue
                if name not in last and len(last) >= self._keys_max:
                    self.end_offset = offset
                    return False
                last[name] = offset
        self.end_offset = next_offset
        return True

    def survivors(self, keys: Sequence[Key], offsets: Sequence[int]) -> list[int]:
        """Returns the indices of the records that no later one replaces.

        A record without a key, which nothing can replace, is dropped, as in Kafka.
        """
        names = _names(keys)
        last_of = self._last.get
        end_offset = self.end_offset
        return [
            index
            for index, (name, offset) in enumerate(zip(names, offsets, strict=True))
            if last_of(name, -1) <= offset and (name is not None or offset >= end_offset)
        ]


def _names(keys: Sequence[Key]) -> Sequence[Key]:
    """How each key is stored: itself below the size of a digest, so that none is another's."""
    try:
        if max(map(len, keys), default=0) < _DIGEST_SIZE:  # type: ignore[arg-type]
            return keys
    except TypeError:
        pass
    return [
        key if key is None or len(key) < _DIGEST_SIZE else hashlib.sha256(key).digest()
        for key in keys
    ]
