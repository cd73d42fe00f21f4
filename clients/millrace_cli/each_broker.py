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
    brokers: Iterable[BrokerDescription],
    ask: Callable[[int], Awaitable[T]],
    *,
    timeout_s: float | None = None,
) -> list[BrokerAnswer[T]]:
    """Calls `ask` with the id of each broker, all at once; the answers are in order.

    `timeout_s` bounds what a broker takes to answer; by default only the client does. Raises
    `NotAuthorized`.
    """
    return list(await asyncio.gather(*(_ask(broker, ask, timeout_s) for broker in brokers)))


async def _ask(
    broker: BrokerDescription, ask: Callable[[int], Awaitable[T]], timeout_s: float | None
) -> BrokerAnswer[T]:
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return BrokerAnswer(broker, await ask(broker.node_id), None)
    except TimeoutError:
        if not limit.expired():
            raise
        silent = f"broker {broker.node_id} did not answer within {timeout_s:g} s"
        return BrokerAnswer(broker, None, silent)
    except NotAuthorized:
        raise
    except MillraceError as error:
        return BrokerAnswer(broker, None, str(error))
