"""All targets by name: those that are functions, and those that need something beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.fuzz.asked_frames import (
    ASKED_FRAMES,
    ASKED_KAFKA_FRAMES,
    asked_frames,
    asked_kafka_frames,
)
from tests.fuzz.connections import CLIENT_CONNECTION, INTAKE, client_connection
from tests.fuzz.found_logs import FOUND_LOG
from tests.fuzz.kafka_bodies import KAFKA_TARGETS
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.typed_lines import TEXT_LINE, typed_lines

_STILL = {target.name: target for target in (*TARGETS, *KAFKA_TARGETS, INTAKE, FOUND_LOG)}
_LIVE: dict[str, Callable[[], AbstractContextManager[Target]]] = {
    CLIENT_CONNECTION: client_connection,
    TEXT_LINE: typed_lines,
    ASKED_FRAMES: asked_frames,
    ASKED_KAFKA_FRAMES: asked_kafka_frames,
}
NAMES = (*_STILL, *_LIVE)


@contextmanager
def opened(name: str) -> Iterator[Target]:
    """The target of that name, with what it needs, for as long as the context."""
    if name in _STILL:
        yield _STILL[name]
        return
    with _LIVE[name]() as target:
        yield target
