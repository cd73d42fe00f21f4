"""Appends that a shard has started and that have not ended.

Owns their ids and their order, and what follows when one ends. Pure: part of a shard. Does not
know what a record means; `key_of` names the thing that a record is about, such as a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Append, Effects

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PendingAppend(Generic[R, T]):
    """One append. `on_ended` gets None when it is durable, else why it could not be written."""

    records: tuple[R, ...]
    keys: tuple[str, ...]
    on_ended: Callable[[ApiError | None, Effects[R, T]], None] | None


class PendingAppends(Generic[R, T]):
    """The appends of one shard that have not ended, oldest first."""

    __slots__ = ("_by_key", "_key_of", "_next_id", "_pending")

    def __init__(self, key_of: Callable[[R], str]) -> None:
        self._key_of = key_of
        self._pending: dict[int, PendingAppend[R, T]] = {}
        self._by_key: Counter[str] = Counter()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: str) -> bool:
        """Whether an append about the key is pending."""
        return key in self._by_key

    def keys(self) -> list[str]:
        """The keys that pending appends are about."""
        return list(self._by_key)

    def records_of(self, key: str) -> Iterator[R]:
        """The pending records about the key, oldest first."""
        if key in self._by_key:
            for pending in self._pending.values():
                if key in pending.keys:
                    yield from (r for r in pending.records if self._key_of(r) == key)

    def start(
        self,
        effects: Effects[R, T],
        records: Sequence[R],
        on_ended: Callable[[ApiError | None, Effects[R, T]], None] | None = None,
    ) -> None:
        """Adds an append to the effects."""
        append_id = self._next_id
        self._next_id += 1
        keys = tuple(dict.fromkeys(map(self._key_of, records)))
        self._by_key.update(keys)
        pending = self._pending[append_id] = PendingAppend(tuple(records), keys, on_ended)
        effects.append(Append(append_id, pending.records))

    def clear(self) -> None:
        """Drops all of them: the shard is unloaded, and no append is reported any more."""
        self._pending.clear()
        self._by_key.clear()

    def end(self, append_id: int, *, durable: bool) -> PendingAppend[R, T]:
        """Takes out an append that has ended. Raises `ValueError` if it cannot have.

        Appends become durable in their order, because a log is durable up to an offset.
        """
        if append_id not in self._pending:
            raise ValueError(f"append {append_id} is not pending")
        oldest = next(iter(self._pending))
        if durable and append_id != oldest:
            raise ValueError(f"append {append_id} is durable before the older append {oldest}")
        ended = self._pending.pop(append_id)
        for key in ended.keys:
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]
        return ended
