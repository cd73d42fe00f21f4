"""The topics that a member of a group shares, and the watch over them.

Owns the subscription, the topics that match its pattern, and the search for those that are not
there, or that the client may not see. Knows no membership: the caller says which topics matter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Set
from contextlib import suppress

from millrace._cluster.cluster import Cluster
from millrace._consumer.positions import Positions
from millrace.config import ConsumerConfig
from millrace.errors import MillraceError, NotAuthorized, again
from millrace.events import EventFeed, EventKind

MISSING_TOPICS_AGE_MS = 5_000
"""How often topics that are not there are looked for."""


class TopicWatch:
    """The subscription of one member, watched while `run` runs."""

    def __init__(
        self, cluster: Cluster, positions: Positions, config: ConsumerConfig, *, feed: EventFeed
    ) -> None:
        self.topics: frozenset[str] = frozenset()
        """The topics that are shared, those of a pattern as far as they are known."""
        self.pattern: re.Pattern[str] | None = None
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._feed = feed
        self._wake = asyncio.Event()
        self._told_missing: set[str] = set()
        self._unlisted: MillraceError | None = None
        """Why there is no topic that could match the pattern."""

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Shares these topics from now on, or all whose names match a pattern."""
        self.pattern = pattern
        self.topics = topics
        self._unlisted = None
        self._wake.set()

    def wake(self) -> None:
        """Looks again."""
        self._wake.set()

    @property
    def denied(self) -> MillraceError | None:
        """Why a topic that is shared cannot be seen, or no topic at all for a pattern.

        A topic with partitions that this consumer reads is left to them: they raise the error too.
        """
        if self._unlisted is not None:
            return self._unlisted
        errors = self._cluster.metadata.topic_errors
        denied = [t for t in self.topics if isinstance(errors.get(t), NotAuthorized)]
        if not denied:
            return None
        read = {where.topic for where in self._positions.assigned()}
        return next((errors[topic] for topic in sorted(denied) if topic not in read), None)

    async def run(
        self,
        watched: Callable[[], Set[str]],
        *,
        on_looked: Callable[[], None],
        on_matching: Callable[[], None],
    ) -> None:
        """Looks for topics that a pattern matches, and for those of `watched` that are not there.

        `on_looked` is called after each look, `on_matching` when other topics than before match.
        """
        attempt = 0
        while True:
            self._wake.clear()
            try:
                if self.pattern is None:
                    await self._look_for_missing(watched, on_looked)
                else:
                    await self._look_for_matching(self.pattern, on_looked, on_matching)
            except MillraceError as error:
                self._feed.emit(EventKind.FETCH_FAILED, str(error), again(error))
                await self._cluster.pause(attempt)
                attempt += 1
                continue
            attempt = 0
            age_ms = self._config.metadata_max_age_ms
            if self._unlisted is not None or self._missing(watched()):
                age_ms = min(age_ms, MISSING_TOPICS_AGE_MS)
            with suppress(TimeoutError):
                async with asyncio.timeout(age_ms / 1000):
                    await self._wake.wait()

    async def _look_for_missing(
        self, watched: Callable[[], Set[str]], on_looked: Callable[[], None]
    ) -> None:
        if missing := self._missing(watched()):
            await self._cluster.refresh(missing)
            on_looked()
            self._tell(self._missing(watched()))

    async def _look_for_matching(
        self,
        pattern: re.Pattern[str],
        on_looked: Callable[[], None],
        on_matching: Callable[[], None],
    ) -> None:
        try:
            names = await self._cluster.list_topics()
        except NotAuthorized as error:
            names = []
            unlisted: MillraceError | None = again(error)
        else:
            unlisted = None
        matching = frozenset(name for name in names if pattern.fullmatch(name))
        if pattern is self.pattern:
            self._unlisted = unlisted
            on_looked()
            if matching != self.topics:
                self.topics = matching
                on_matching()

    def _missing(self, topics: Set[str]) -> list[str]:
        """Those of the topics that are not there."""
        return sorted(topics - self._cluster.metadata.leaders.keys())

    def _tell(self, missing: list[str]) -> None:
        """Emits an event for each missing topic, once while it is missing."""
        self._told_missing.intersection_update(missing)
        for topic in missing:
            # None: a topic that was subscribed to during the refresh.
            error = self._cluster.metadata.topic_errors.get(topic)
            if topic not in self._told_missing and error is not None:
                self._told_missing.add(topic)
                self._feed.emit(EventKind.FETCH_FAILED, f"{error}; it is looked for", error)
