"""Objects in this process that are not freed, but for those of others than the test that asks."""

from __future__ import annotations

import gc
from collections.abc import Sequence


def living(kinds: tuple[type, ...], others: Sequence[object] = ()) -> list[object]:
    """Those that the collector knows, in cycles or without any; `others` were there before."""
    known = {id(other) for other in others}
    return [
        found for found in gc.get_objects() if isinstance(found, kinds) and id(found) not in known
    ]
