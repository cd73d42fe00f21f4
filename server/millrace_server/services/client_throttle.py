"""What clients take of this broker, counted against their quotas.

A request is done first and counted afterwards. A client that has taken more than its quota is held
back: the broker takes no further request of the connection until the rate is right again (KIP-219).
Changes of partitions are the exception: one that comes too early is refused (KIP-599).
"""

from __future__ import annotations

import math
import types
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock
from millrace_server.metadata import client_quotas
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.client_quotas import NAME_CHARACTERS_MAX, Quota, QuotaSet
from millrace_server.principal import user_name
from millrace_server.services.request_context import RequestContext
from millrace_server.statistics import Registry, metrics
from millrace_server.token_bucket import TokenBucket

T = TypeVar("T")
CLIENTS_MAX = 10_000
"""Clients whose quotas are known, and buckets of each kind: the least recent one is dropped for
another. A client chooses its id, so there may be any number."""
BURST_MS = 200
"""What a client that was quiet may take at once; a mean over ten seconds is exact to 2 %."""
_BURSTS_MS = {
    # A program creates its topics together. Kafka's `controller.quota.window.num`.
    client_quotas.CONTROLLER_MUTATION_RATE: 10_000,
    # A client opens some connections when it starts.
    client_quotas.CONNECTION_CREATION_RATE: 1_000,
}
THROTTLE_TIME_MS_MAX = 2**31 - 1
NANOSECONDS_PER_PERCENT = 10_000_000


class ClientThrottle:
    """The rates of all clients of one broker."""

    def __init__(self, cache: MetadataCache, clock: Clock, statistics: Registry) -> None:
        self.cache = cache
        """Hot paths look at `cache.image.quotas.entities` before they call: most clusters have
        none."""
        self._clock = clock
        self._quotas: QuotaSet | None = None
        self._clients: OrderedDict[tuple[str, str], dict[str, Quota]] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, object], TokenBucket] = OrderedDict()
        self._counters = {
            key: statistics.counter(metrics.THROTTLES, key) for key in client_quotas.QUOTAS
        }

    def count_produced(self, context: RequestContext, size_bytes: int) -> None:
        """Counts the records that a client has sent."""
        self._count(context, client_quotas.PRODUCER_BYTE_RATE, size_bytes)

    def count_fetched(self, context: RequestContext, size_bytes: int) -> None:
        """Counts the records that a client gets."""
        self._count(context, client_quotas.CONSUMER_BYTE_RATE, size_bytes)

    def fetch_bytes_max(self, context: RequestContext, wanted: int) -> int:
        """How many bytes a response may have: what the client may take in a second, so that it
        is never held back for much longer."""
        if context.hold_back is None:
            return wanted
        quota = self._of(context).get(client_quotas.CONSUMER_BYTE_RATE)
        return wanted if quota is None else min(wanted, math.ceil(quota.value))

    def check_mutation(self, context: RequestContext, partitions: int) -> None:
        """Counts partitions that a client creates or deletes.

        Raises `ApiError` (THROTTLING_QUOTA_EXCEEDED) before its rate is right again; a client of
        Kafka is held back until then, too, and its response says so. A client that does not know
        that error is held back afterwards instead.
        """
        key = client_quotas.CONTROLLER_MUTATION_RATE
        bucket = self._bucket(context, key)
        if bucket is None:
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = bucket.ready_ms(now_ms=now_ms) - now_ms
        if context.knows_throttling and wait_ms > 0:
            if context.is_held_when_refused:
                self._hold_back(context, key, bucket, now_ms)
            else:
                self._counters[key].value += 1
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota of {bucket.rate:g} partitions a second is used up; ask again in "
                f"{wait_ms} ms",
            )
        bucket.take(partitions, now_ms=now_ms)
        if not context.knows_throttling:
            self._hold_back(context, key, bucket, now_ms)

    def connection_delay_ms(self, address: str) -> int:
        """Counts a connection; how long it waits until it is taken."""
        rate = self.cache.image.quotas.connection_rate(address)
        if rate is None:
            return 0
        key = client_quotas.CONNECTION_CREATION_RATE
        bucket = self._shared_bucket(key, address, rate)
        now_ms = self._clock.monotonic_ms()
        wait_ms = bucket.ready_ms(now_ms=now_ms) - now_ms
        bucket.take(1, now_ms=now_ms)
        if wait_ms:
            self._counters[key].value += 1
        return wait_ms

    def throttle_time_ms(self, context: RequestContext) -> int:
        """How long a client is still held back, as far as responses can say it."""
        if not context.held_until_ms:
            return 0
        left_ms = context.held_until_ms - self._clock.monotonic_ms()
        return min(max(0, left_ms), THROTTLE_TIME_MS_MAX)

    def timed(
        self,
        context: RequestContext,
        handle: Callable[[], T | Coroutine[Any, Any, T] | None],
    ) -> T | Coroutine[Any, Any, T] | None:
        """What `handle` returns; its time, and that of each step of its coroutine, is counted.

        Before the login nothing is: all clients have one name then, and would share one quota.
        """
        if not context.is_authenticated:
            return handle()
        began_ns = self._clock.monotonic_ns()
        handled = handle()
        self._count_time(context, began_ns)
        if isinstance(handled, Coroutine):
            return self._timed_steps(context, handled)
        return handled

    async def _timed_steps(self, context: RequestContext, work: Coroutine[Any, Any, T]) -> T:
        """`_steps` as a coroutine object, which is what a connection drives."""
        result: T = await self._steps(context, work)
        return result

    @types.coroutine
    def _steps(
        self, context: RequestContext, work: Coroutine[Any, Any, T]
    ) -> Generator[Any, None, T]:
        """Drives a coroutine. A request may wait for long, and only what it computes is counted."""
        thrown: BaseException | None = None
        while True:
            began_ns = self._clock.monotonic_ns()
            try:
                awaited = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._count_time(context, began_ns)
            try:
                thrown = None
                yield awaited
            except BaseException as error:
                thrown = error

    def _count_time(self, context: RequestContext, began_ns: int) -> None:
        took_ns = self._clock.monotonic_ns() - began_ns
        percent_seconds = took_ns / NANOSECONDS_PER_PERCENT
        self._count(context, client_quotas.REQUEST_PERCENTAGE, percent_seconds)

    def _count(self, context: RequestContext, key: str, amount: float) -> None:
        bucket = self._bucket(context, key)
        if bucket is not None and amount:
            now_ms = self._clock.monotonic_ms()
            bucket.take(amount, now_ms=now_ms)
            self._hold_back(context, key, bucket, now_ms)

    def _hold_back(
        self, context: RequestContext, key: str, bucket: TokenBucket, now_ms: int
    ) -> None:
        until_ms = bucket.ready_ms(now_ms=now_ms)
        if until_ms > now_ms and context.hold_back is not None:
            self._counters[key].value += 1
            if until_ms > context.held_until_ms:
                context.held_until_ms = until_ms
                context.hold_back(until_ms)

    def _bucket(self, context: RequestContext, key: str) -> TokenBucket | None:
        if context.hold_back is None:
            return None
        quota = self._of(context).get(key)
        return None if quota is None else self._shared_bucket(key, quota.shared_by, quota.value)

    def _of(self, context: RequestContext) -> dict[str, Quota]:
        quotas = self.cache.image.quotas
        if quotas is not self._quotas:
            self._quotas = quotas
            self._clients.clear()
        client = user_name(context.principal), context.client_id[:NAME_CHARACTERS_MAX]
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = quotas.of_client(*client)
            if len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(client)
        return known

    def _shared_bucket(self, key: str, shared_by: object, rate: float) -> TokenBucket:
        name = key, shared_by
        bucket = self._buckets.get(name)
        if bucket is None:
            burst_ms, now_ms = _BURSTS_MS.get(key, BURST_MS), self._clock.monotonic_ms()
            bucket = self._buckets[name] = TokenBucket(rate, now_ms=now_ms, burst_ms=burst_ms)
            if len(self._buckets) > CLIENTS_MAX:
                self._buckets.popitem(last=False)
        else:
            bucket.rate = rate
            self._buckets.move_to_end(name)
        return bucket
