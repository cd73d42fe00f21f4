"""How many functions of the broker one request passes, from its bytes to those of its response.

Each function on the way is one that a reader has to know, and costs each request its call. The
figures are in the table of ARCHITECTURE.md.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

import millrace_server
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect

SOURCES = str(Path(millrace_server.__file__).parent)
FUNCTIONS_MAX = {"produce": 58, "fetch": 64}


async def produce(wire: Wire) -> None:
    await wire.produce("t", batch(b"v"))


async def fetch(wire: Wire) -> None:
    await wire.fetch("t", 0)


async def functions_passed(request: Callable[[], Awaitable[None]]) -> set[CodeType]:
    """The functions of the broker that are called until the response is there."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Not comprehensions, which are functions to the interpreter alone.
        if event == "call" and code.co_filename.startswith(SOURCES) and code.co_name[0] != "<":
            seen.add(code)

    sys.setprofile(note)
    try:
        await request()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("request_once", [produce, fetch])
async def test_a_request_passes_few_functions(
    request_once: Callable[[Wire], Awaitable[None]],
) -> None:
    async with Broker() as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"durability": "os"})
        for _ in range(20):
            await produce(wire)
            await request_once(wire)
        found = [await functions_passed(lambda: request_once(wire)) for _ in range(5)]
    passed = min(found, key=len)
    assert len(passed) <= FUNCTIONS_MAX[request_once.__name__], sorted(
        f"{Path(code.co_filename).stem}.{code.co_qualname}" for code in passed
    )
