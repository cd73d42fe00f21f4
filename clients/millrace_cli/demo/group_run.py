"""The group's part of the demo: three processes share a topic, one is killed, a fourth joins.

Owns the order of events and the output. The caller passes a broker's address and a topic without
writers. `member_process` runs the processes, and `ledger` checks the result.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import chain

from millrace_cli.demo.ledger import Ledger
from millrace_cli.demo.member_process import MemberProcess
from millrace_cli.exits import CommandError, Exit
from millrace_cli.table import show

GROUP = "departures"
MEMBERS = 3
"""Members at the start; one more joins after the kill."""
RECORDS_OF_A_COMMIT_MAX = 500
COMMITS_MIN = 100
"""Least commits of the whole topic, if it has as many records, so that a kill is between two."""
WAIT_S = 60.0
"""Longest single wait; all of them together take seconds."""


async def share(servers: str, topic: str) -> Exit:
    """Runs the group on the topic; prints the share of each member, and checks the result.

    Raises `CommandError` if a member fails, or if the group makes no progress for `WAIT_S`.
    """
    ledger = Ledger(await _ends(servers, topic))
    run = _Run(ledger)
    async with AsyncExitStack() as stack:
        for member in run.members:
            stack.push_async_callback(member.kill)
        victim = await run.run(servers, topic)
    _show(run.members, ledger, victim)
    return _check_ledger(ledger, victim.number)


async def _ends(servers: str, topic: str) -> dict[int, int]:
    from millrace.consumer import Consumer

    async with Consumer(servers, topic) as consumer:
        return {where.partition: end for where, end in (await consumer.end_offsets()).items()}


class _Run:
    """The processes of the group, and the order of events."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._changed = asyncio.Event()
        self.members = [
            MemberProcess(number, ledger, self._changed.set) for number in range(1, MEMBERS + 2)
        ]

    async def run(self, servers: str, topic: str) -> MemberProcess:
        """Runs until all records are committed; returns the killed member."""
        *three, fourth = self.members
        records = sum(self.ledger.ends.values())
        of_a_commit = max(1, min(RECORDS_OF_A_COMMIT_MAX, records // COMMITS_MIN))
        for member in self.members:
            await member.start(servers, topic, GROUP, str(of_a_commit))
        for member in three:
            await member.send("join")
        await self._until(self._is_shared, "each of the three has its share of the partitions")
        for member in three:
            await member.send("go")
        await self._until(
            lambda: self.ledger.records >= records // 3, "the group processes a third of all"
        )
        victim = max(three, key=lambda member: self.ledger.left(member.assigned))
        await victim.send("hold")
        await self._until(
            lambda: victim.is_held or self.ledger.is_done,
            f"member {victim.number} processes records that it will not commit",
        )
        await victim.kill()
        await fourth.send("join", "go")
        await self._until(lambda: self.ledger.is_done, "the others process and commit the rest")
        for member in self.members:
            if member is not victim:
                await self._end(member)
        return victim

    def _is_shared(self) -> bool:
        """Whether each partition has one member, and no member is idle that could have one."""
        shares = [member.assigned for member in self.members]
        idle_max = len(shares) - min(MEMBERS, len(self.ledger.ends))
        return sorted(chain(*shares)) == sorted(self.ledger.ends) and shares.count([]) <= idle_max

    async def _until(self, happened: Callable[[], bool], event: str) -> None:
        """Waits for an event, which `event` describes. Raises `CommandError` on timeout."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not happened():
                    self._changed.clear()
                    for member in self.members:
                        self._check(member)
                    await self._changed.wait()
        except TimeoutError:
            raise CommandError(
                f"the group's processes took more than {WAIT_S:.0f} s until {event}; run the demo "
                "again on a less busy machine, or with a --limit"
            ) from None

    def _check(self, member: MemberProcess) -> None:
        if member.has_ended and not member.was_killed:
            raise CommandError(f"member {member.number} of the group failed; its error is above")

    async def _end(self, member: MemberProcess) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                code = await member.end()
        except TimeoutError:
            raise CommandError(
                f"member {member.number} did not leave the group within {WAIT_S:.0f} s; run the "
                "demo again on a less busy machine"
            ) from None
        if code != 0:
            raise CommandError(
                f"member {member.number} ended with {code} and did not leave the group; its "
                "error is above"
            )


def _show(members: list[MemberProcess], ledger: Ledger, victim: MemberProcess) -> None:
    rows = []
    for member in members:
        partitions = ",".join(map(str, ledger.partitions_of(member.number)))
        records = ledger.records_of(member.number)
        if member is victim:
            fate = f"killed with {len(ledger.window(member.number)):,} not committed"
        elif member.number <= MEMBERS:
            fate = "stayed"
        else:
            fate = "joined after the kill" if records else "joined when nothing was left"
        rows.append((member.number, partitions or None, records, fate))
    columns = ("member", "partitions", "records #", "fate")
    show(columns, rows, title="a group of processes", kind="member")
    sys.stdout.flush()


def _check_ledger(ledger: Ledger, victim: int) -> Exit:
    faults = ledger.faults(victim)
    if faults:
        _print("group: the result is wrong")
        for fault in faults:
            _print(f"  {fault}")
        for refusal in ledger.refusals:
            _print(f"  a commit was refused: {refusal}")
        return Exit.REFUSED
    flights = sum(ledger.ends.values())
    repeated = len(ledger.repeated())
    _print(
        f"group: {flights:,} flights, each processed at least once, those of a carrier in order; "
        + (
            f"{repeated:,} twice, all between member {victim}'s last commit and its kill"
            if repeated
            else f"none twice: member {victim} had nothing uncommitted when it was killed"
        )
    )
    return Exit.OK


def _print(line: str) -> None:
    """Prints a message to stderr, as the rest of the demo does."""
    print(line, file=sys.stderr)
