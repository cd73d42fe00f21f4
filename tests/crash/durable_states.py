"""Every state in which a power cut may leave a disk.

Owns the enumeration. Refuses to know what the files mean. A crash may come before every operation
of a workload; `MomentDisk` keeps what could be lost at each of these moments, and `states` gives
the disks as the next start may find them:

- each unsynced write is absent, or there in any of its 512-byte sectors; of a long write the
  prefixes, the suffixes, and all but one sector, and of a very long one some of these;
- each unsynced truncation or preallocation was done or not;
- each unsynced creation, rename or removal in a directory is kept or lost by itself, and the
  removal of a directory may have got half way.

That is more than one file system does, and includes what each of them may do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

from millrace_simulation.disk import SECTOR_BYTES, FaultyDisk, _Gone, _Inode

Change = tuple[int, bytes] | int
"""A write as (position, data), or a new size."""


class Gone(NamedTuple):
    """A name does not stand for that file (None: for a directory) any more."""

    number: int | None


Entry = dict[str, int | Gone | None]
"""One change of a directory: path to the number of a file, None for a directory."""
T = TypeVar("T")

_SECTORS_ALL = 3
"""Up to so many sectors of one write are lost and kept in every combination."""
_CHANGES_ALL = 6
"""Up to so many changes of one directory are too; of more, every prefix and every one missing."""
_PLACES_ALL = 16
"""Of writes of more sectors than this only the ends and the middle are looked at."""
_CONTENTS_MAX = 2_048
"""States of one file at one moment; beyond that a sample."""


@dataclass
class _File:
    durable: bytes
    unsynced: list[Change]


@dataclass
class Moment(Generic[T]):
    """A disk between two operations, and what had been promised by then."""

    journal_size: int
    facts: T
    files: list[_File]
    durable: dict[str, int | None]
    unsynced: dict[str, list[Entry]]


class MomentDisk(FaultyDisk):
    """Keeps a `Moment` before every operation; `facts` says what has been promised by then."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: Callable[[], object] | None = None
        self.moments: list[Moment[object]] = []

    def operation(self, name: str, path: str, half: Callable[[], object] | None = None) -> Any:
        if self.facts is not None:
            self.moments.append(self.moment(self.facts()))
        return super().operation(name, path, half)

    def moment(self, facts: T) -> Moment[T]:
        """What a power cut now could make of the disk."""
        numbers: dict[int, int] = {}
        files: list[_File] = []

        def number(inode: _Inode | None) -> int | None:
            if inode is None:
                return None
            if id(inode) not in numbers:
                numbers[id(inode)] = len(files)
                files.append(_File(bytes(inode.durable), list(inode.unsynced)))
            return numbers[id(inode)]

        durable = {path: number(inode) for path, inode in self._durable.items()}
        unsynced = {
            directory: [
                {
                    path: Gone(number(inode.inode)) if isinstance(inode, _Gone) else number(inode)
                    for path, inode in change.items()
                }
                for change in changes
            ]
            for directory, changes in self._unsynced.items()
            if changes
        }
        return Moment(len(self.journal), facts, files, durable, unsynced)

    @classmethod
    def holding(cls, contents: dict[str, bytes | None]) -> MomentDisk:
        """A disk with durable files, and None for directories."""
        disk = cls()
        for path, content in contents.items():
            if content is None:
                disk._cached[path] = None
                continue
            file = disk.open(path, create=True)
            file.release()
            inode = disk._cached[path]
            assert inode is not None
            inode.cached[:] = inode.durable[:] = content
        disk._durable = dict(disk._cached)
        disk._unsynced.clear()
        disk.files.clear()
        disk.journal.clear()
        disk.operations = 0
        return disk

    def contents(self) -> dict[str, bytes | None]:
        """What the running process would find, as `holding` takes it."""
        return {
            path: None if inode is None else bytes(inode.cached)
            for path, inode in self._cached.items()
        }


@dataclass
class Tally:
    """How many states there were and were looked at."""

    moments: int = 0
    possible: int = 0
    checked: int = 0
    sampled_moments: int = 0
    seen: set[int] = field(default_factory=set)


def states(
    moment: Moment[T], tally: Tally, *, limit: int, rng: random.Random
) -> Iterator[MomentDisk]:
    """The disks that a power cut at a moment may leave, each once in all calls with this tally.

    Of a moment with more than `limit` states a sample of that size, with the two in which
    everything and nothing was lost.
    """
    tally.moments += 1
    contents = [_contents(file, rng) for file in moment.files]
    trees = _trees(moment)
    sizes = [len(trees), *map(len, contents)]
    total = prod(sizes)
    tally.possible += total
    chosen: Sequence[int] = range(total)
    if total > limit:
        tally.sampled_moments += 1
        chosen = [0, total - 1, *(rng.randrange(total) for _ in range(limit - 2))]
    promised = hash(repr(moment.facts))
    for index in chosen:
        places = []
        for size in sizes:
            index, place = divmod(index, size)
            places.append(place)
        tree = trees[places[0]]
        found = {
            path: None if number is None else contents[number][places[1 + number]]
            for path, number in tree.items()
        }
        key = hash((promised, frozenset(found.items())))
        if key not in tally.seen:
            tally.seen.add(key)
            tally.checked += 1
            yield MomentDisk.holding(found)


def _contents(file: _File, rng: random.Random) -> list[bytes]:
    """What may be in a file; first with nothing of what was not synced, last with all of it.

    Change by change: a file that is written over again and again has few contents, and very many
    combinations of writes that come to the same.
    """
    found, last = {file.durable: None}, file.durable
    for change in file.unsynced:
        fates = _fates(change)
        found = {_after(content, fate): None for content in found for fate in fates}
        last = _after(last, fates[-1])
        if len(found) > _CONTENTS_MAX:
            nothing, *others = found
            found = dict.fromkeys((nothing, *rng.sample(others, _CONTENTS_MAX)))
    found.pop(last, None)
    return [*found, last]


def _after(content: bytes, parts: tuple[Change, ...]) -> bytes:
    if not parts:
        return content
    changed = bytearray(content)
    for part in parts:
        _apply(changed, part)
    return bytes(changed)


def _fates(change: Change) -> list[tuple[Change, ...]]:
    """What may remain of a change: nothing first, all of it last."""
    if isinstance(change, int):
        return [(), (change,)]
    position, data = change
    cuts = [*range(SECTOR_BYTES - position % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
    sectors = [
        (position + start, data[start:end]) for start, end in zip([0, *cuts], cuts, strict=False)
    ]
    return [
        tuple(sector for sector, kept in zip(sectors, mask, strict=True) if kept)
        for mask in _masks(len(sectors), _SECTORS_ALL)
    ]


def _masks(count: int, all_to: int) -> list[tuple[bool, ...]]:
    """Which of `count` things are kept: none first, all last."""
    if count <= all_to:
        return sorted(product((False, True), repeat=count), key=sum)
    places = list(range(count + 1))
    if count > _PLACES_ALL:
        places = [0, 1, count // 2, count - 1, count]
    masks = {tuple(place < end for place in range(count)) for end in places}
    masks |= {tuple(place >= start for place in range(count)) for start in places}
    masks |= {tuple(place != lost for place in range(count)) for lost in places}
    return sorted(masks, key=lambda mask: (sum(mask), mask))


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + len(data)] = data


def _trees(moment: Moment[T]) -> list[dict[str, int | None]]:
    """What may be in the directories: with none of the unsynced changes first, with all last."""
    changes = [
        [step for entry in entries for step in _steps(entry)]
        for entries in moment.unsynced.values()
    ]
    found: dict[frozenset[tuple[str, int | None]], dict[str, int | None]] = {}
    for masks in product(*(_masks(len(steps), _CHANGES_ALL) for steps in changes)):
        tree = dict(moment.durable)
        for steps, mask in zip(changes, masks, strict=True):
            for step, kept in zip(steps, mask, strict=True):
                if kept:
                    _enter(tree, step)
        _drop_orphans(tree)
        found.setdefault(frozenset(tree.items()), tree)
    return list(found.values())


def _steps(entry: Entry) -> list[Entry]:
    """A rename is one step; the removal of a directory is one for each file, and its own."""
    if all(isinstance(number, Gone) for number in entry.values()):
        return [{path: entry[path]} for path in sorted(entry, key=len, reverse=True)]
    return [entry]


def _enter(tree: dict[str, int | None], step: Entry) -> None:
    for path, number in step.items():
        if not isinstance(number, Gone):
            tree[path] = number
        # A directory goes after all that is in it.
        elif tree.get(path, number) == number.number and not any(
            name.startswith(f"{path}/") and name not in step for name in tree
        ):
            del tree[path]


def _drop_orphans(tree: dict[str, int | None]) -> None:
    for path in sorted(tree):
        if path and path.rpartition("/")[0] not in tree:
            del tree[path]
