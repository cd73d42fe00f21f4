"""Partitions on the command line: `T` for all of a topic, `T:P,...` for some of it.

Owns the meaning of such an argument. Asks no broker.
"""

from __future__ import annotations

from collections.abc import Sequence


def chosen_partitions(named: Sequence[str]) -> dict[str, list[int] | None]:
    """The selected partitions of each topic; None for all.

    Raises `ValueError` for a text that is neither a topic nor a topic with numbers.

    >>> chosen_partitions(["clicks:2,0", "views", "clicks:1"])
    {'clicks': [0, 1, 2], 'views': None}
    """
    chosen: dict[str, list[int] | None] = {}
    for text in named:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} names no topic")
        if not colon:
            chosen[topic] = None
            continue
        wanted = []
        for number in numbers.split(","):
            if not (number.isascii() and number.isdigit() and len(number) < 10):
                raise ValueError(f"{text!r}: {number!r} is not a partition; type {topic}:0,1")
            wanted.append(int(number))
        before = chosen.get(topic, [])
        chosen[topic] = None if before is None else sorted({*before, *wanted})
    return chosen
