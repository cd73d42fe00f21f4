"""What one request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def repeated(names: Iterable[H]) -> set[H]:
    """The names that stand more than once."""
    return {name for name, count in Counter(names).items() if count > 1}
