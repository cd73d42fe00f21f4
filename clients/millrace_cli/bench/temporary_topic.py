"""A topic that exists for the time of a run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from millrace.admin import Admin
from millrace.errors import MillraceError, NotAuthorized, UnknownTopicOrPartition
from millrace_cli.client_identity import identity
from millrace_cli.exits import tell

PREFIX = "bench-"
REMOVE_S = 5.0
"""How long the removal may take."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Of a temporary topic."""

    partitions: int = 1
    configs: Mapping[str, str | None] = field(default_factory=dict)


@asynccontextmanager
async def used_topic(
    name: str | None, settings: TopicSettings, servers: str, broker_timeout_s: float
) -> AsyncIterator[str]:
    """The topic of that name. Without a name, a new one, which the end of the block removes.

    A signal that cancels the block does not cancel the removal; the next signal does.
    """
    if name is not None:
        yield name
        return
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
    async with Admin(servers, **identity()) as admin:
        remove_s = min(REMOVE_S, broker_timeout_s)
        try:
            await admin.create_topic(name, partitions=settings.partitions, configs=settings.configs)
        except NotAuthorized:
            # There is nothing to remove.
            raise
        except BaseException:
            await _remove(admin, name, remove_s)
            raise
        try:
            yield name
        finally:
            await _remove(admin, name, remove_s)


async def _remove(admin: Admin, name: str, timeout_s: float) -> None:
    removed = False
    try:
        async with asyncio.timeout(timeout_s):
            await admin.delete_topic(name)
        removed = True
    except UnknownTopicOrPartition:
        # The broker refused to create it.
        removed = True
    except (MillraceError, TimeoutError):
        pass
    finally:
        if not removed:
            tell(f"the temporary topic may remain: millrace topic delete {name} removes it")
