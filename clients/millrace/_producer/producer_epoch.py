"""The producer id and epoch that batches are numbered under (KIP-98, KIP-360).

Owns whether a new epoch is wanted and when to ask for it. Knows no batch.
"""

from __future__ import annotations


class ProducerEpoch:
    """The id and epoch of one producer; -1 and -1 until the broker gives them.

    `is_wanted` is set when the present epoch cannot go on, and cleared by `begin`. `attempts`
    counts the failed requests for an epoch since the last success.
    """

    __slots__ = ("_is_asked", "attempts", "epoch", "is_wanted", "pause_until_ms", "producer_id")

    def __init__(self, *, is_wanted: bool) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.is_wanted = is_wanted
        self.attempts = 0
        self.pause_until_ms = 0
        self._is_asked = False

    @property
    def may_be_asked_for(self) -> bool:
        """Whether an epoch is wanted and no request for it is on its way."""
        return self.is_wanted and not self._is_asked

    def ask(self) -> tuple[int, int]:
        """Begins a request for an epoch: the `(producer_id, epoch)` to send."""
        self._is_asked = True
        return self.producer_id, self.epoch

    def begin(self, producer_id: int, epoch: int) -> None:
        """The broker gave an epoch."""
        self.producer_id, self.epoch = producer_id, epoch
        self.is_wanted = self._is_asked = False
        self.attempts = 0

    def retry_at(self, at_ms: int) -> None:
        """The request failed and is repeated at `at_ms`."""
        self._is_asked = False
        self.pause_until_ms = at_ms
        self.attempts += 1

    def forget(self) -> None:
        """The broker does not accept this id: the next request asks for a new one."""
        self.producer_id = self.epoch = -1
        self.is_wanted = True
        self._is_asked = False
