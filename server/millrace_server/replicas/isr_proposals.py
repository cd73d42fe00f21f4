"""The ISRs that leaders on this broker ask the active controller for: AlterPartition.

One request is on its way at a time, with what all leaders have proposed meanwhile. How a proposal
has ended, its leader is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
)
from millrace_server.api_error import ApiError
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment
from millrace_server.logs import FAILURE_LINE_MS, LogRateLimiter, get_logger
from millrace_server.replicas.led_partition import LedPartition
from millrace_server.replication.effects import ProposeIsr

log = get_logger("millrace.replication")
CALL_TIMEOUT_MS = 5_000
PARTITIONS_MAX = 2_000
"""Of one request."""
_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)
"""The proposal will never take effect; with another error the partition is another by now."""


class IsrProposals:
    """Sends proposals until `close`."""

    def __init__(
        self,
        env: Environment,
        controller: ControllerCalls,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        on_ended: Callable[[LedPartition], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_ended(led)` is called behind the outcome of a proposal: another may be due later.

        `on_failure(error)` is called when sending has ended with an error that is no `ApiError`.
        """
        self._env = env
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._on_ended = on_ended
        self._on_failure = on_failure
        self._lines = LogRateLimiter(env.clock, lines=1, period_ms=FAILURE_LINE_MS)
        self.shrinks = 0
        """Accepted proposals that took replicas out of an ISR."""
        self.expands = 0
        """Accepted proposals that took replicas into an ISR."""
        self._proposed: dict[LedPartition, ProposeIsr] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def propose(self, led: LedPartition, proposal: ProposeIsr) -> None:
        """Sends a proposal; the leader's core is told of the outcome."""
        self._proposed[led] = proposal
        if not self._is_closed and (self._sending is None or self._sending.done()):
            self._sending = self._env.spawn.task(self._run(), name="isr proposals")

    async def close(self) -> None:
        """Sends no more."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _run(self) -> None:
        try:
            await self._send()
        except Exception as error:
            # The leaders of these proposals would wait for an outcome for ever.
            self._on_failure(error)

    async def _send(self) -> None:
        while self._proposed:
            some = dict(list(self._proposed.items())[:PARTITIONS_MAX])
            for led in some:
                del self._proposed[led]
            # The metadata may bring the change here before the response.
            before = {led: led.core.isr.committed for led in some}
            request = AlterPartitionRequest(
                self._broker_id,
                self._broker_epoch(),
                tuple(_altered(led, proposal) for led, proposal in some.items()),
            )
            try:
                response = await self._controller.call(
                    request, AlterPartitionResponse, timeout_ms=CALL_TIMEOUT_MS
                )
            except ApiError as error:
                if (suppressed := self._lines.take()) is not None:
                    log.warning(
                        "ISRs not changed",
                        partitions=len(some),
                        reason=error.message,
                        suppressed=suppressed,
                    )
                now_ms = self._env.clock.monotonic_ms()
                for led, proposal in some.items():
                    led.carry_out(led.core.on_undecided(proposal, now_ms))
                    self._on_ended(led)
            else:
                for (led, proposal), result in zip(some.items(), response.partitions, strict=True):
                    self._end(led, proposal, result, before[led])

    def _end(
        self,
        led: LedPartition,
        proposal: ProposeIsr,
        result: AlteredPartitionResult,
        before: frozenset[int],
    ) -> None:
        now_ms, core = self._env.clock.monotonic_ms(), led.core
        if result.error_code == ErrorCode.NONE:
            log.info(
                "isr changed",
                topic=led.partition.topic,
                partition=led.partition.number,
                isr=list(result.isr),
            )
            after = frozenset(result.isr)
            self.shrinks += bool(before - after)
            self.expands += bool(after - before)
            effects = core.on_accepted(proposal, result.isr, result.partition_epoch, now_ms)
        elif result.error_code in _REFUSED:
            effects = core.on_refused(proposal, now_ms)
        else:
            effects = core.on_undecided(proposal, now_ms)
        led.carry_out(effects)
        self._on_ended(led)


def _altered(led: LedPartition, proposal: ProposeIsr) -> AlteredPartition:
    return AlteredPartition(
        *led.key,
        proposal.leader_epoch,
        proposal.partition_epoch,
        tuple(IsrMember(member.broker_id, member.epoch) for member in proposal.isr),
    )
