"""Answers that come later: one future made from another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


def mapped(
    source: asyncio.Future[T],
    convert: Callable[[T], U],
    *,
    drop: Callable[[U], None] | None = None,
) -> asyncio.Future[Any]:
    """A future of `convert(result of source)`; cancelling it cancels `source`.

    `drop` takes a result that came too late for a cancelled future.
    """
    target: asyncio.Future[U] = source.get_loop().create_future()

    def forward(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            target.cancel()
        elif (error := done.exception()) is not None:
            if not target.done():
                target.set_exception(error)
        elif target.done():
            if drop is not None:
                drop(convert(done.result()))
        else:
            try:
                target.set_result(convert(done.result()))
            except Exception as failure:
                target.set_exception(failure)

    source.add_done_callback(forward)
    target.add_done_callback(lambda done: source.cancel() if done.cancelled() else None)
    return target
