"""One question to each broker: what it answers, or why it does not.

A broker that is away must not hide the answers of the others. A missing right is no answer of one
broker: it is missing at all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from millrace.brokers import BrokerDescription
from millrace.errors import MillraceError, NotAuthorized

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerAnswer(Generic[T]):
    """The answer of one broker: a `value`, or None and an `error`."""

    broker: BrokerDescription
    value: T | None
    error: str | None


async def ask_each(
    brokers: Iterable[BrokerDescription], ask: Callable[[int], Awaitable[T]]
) -> list[BrokerAnswer[T]]:
    """Calls `ask` with the id of each broker, all at once; the answers are in order.

    Raises `NotAuthorized`.
    """
    return list(await asyncio.gather(*(_ask(broker, ask) for broker in brokers)))


async def _ask(broker: BrokerDescription, ask: Callable[[int], Awaitable[T]]) -> BrokerAnswer[T]:
    try:
        return BrokerAnswer(broker, await ask(broker.node_id), None)
    except NotAuthorized:
        raise
    except MillraceError as error:
        return BrokerAnswer(broker, None, str(error))
