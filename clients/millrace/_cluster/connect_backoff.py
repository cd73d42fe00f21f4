"""When a client dials an address again after it could not connect there.

A client whose brokers are away retries much at the same time: batches, fetches, positions, commits,
metadata. Without this each of them would dial each broker at each of its tries. With it an address
is dialed once in a pause that grows (Kafka's `reconnect.backoff.ms`). In the meantime a try fails
at once with the error of the last one; one that looks for any broker waits for the first pause to
end, so that no call fails for the pause alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millrace._backoff import Rng, backoff_ms
from millrace.config import ClientConfig
from millrace.errors import ConnectionFailed, MillraceError, again
from millrace_wire.connection import Address

ADDRESSES_MAX = 1_000
"""Failed addresses that are known; the oldest is dropped."""


@dataclass(slots=True)
class _Failure:
    error: MillraceError
    attempts: int
    until_ms: float


class ConnectBackoff:
    """The addresses where the last connect failed. Times are a monotonic clock's, given."""

    def __init__(self, config: ClientConfig, rng: Rng) -> None:
        self._config = config
        self._rng = rng
        self._failures: dict[Address, _Failure] = {}

    def check(self, address: Address, now_ms: float) -> None:
        """Raises the `ConnectionFailed` of the last try while it is too early for another one."""
        failure = self._failures.get(address)
        if failure is not None and now_ms < failure.until_ms:
            raise again(failure.error)

    def wait_ms(self, addresses: Iterable[Address], now_ms: float) -> float:
        """How long until one of these may be dialed."""
        untils = (
            0.0 if failure is None else failure.until_ms
            for failure in map(self._failures.get, addresses)
        )
        return max(0.0, min(untils, default=0.0) - now_ms)

    def failed(self, address: Address, error: ConnectionFailed, now_ms: float) -> None:
        """A connect failed. Several at the same time are one failure."""
        before = self._failures.get(address)
        if before is not None and now_ms < before.until_ms:
            return
        attempts = 0 if before is None else before.attempts
        config = self._config
        delay_ms = backoff_ms(
            attempts,
            first_ms=config.retry_backoff_ms,
            max_ms=config.retry_backoff_max_ms,
            rng=self._rng,
        )
        self._failures.pop(address, None)
        if len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = _Failure(again(error), attempts + 1, now_ms + delay_ms)

    def connected(self, address: Address) -> None:
        """A connect succeeded."""
        self._failures.pop(address, None)
