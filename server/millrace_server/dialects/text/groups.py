"""GROUPS and LAG: consumer groups as lines (wire_spec.md W-8.4).

Owns the lines, and how many of them an answer holds: it ends with the line that fills it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from millrace_server.dialects.text.lines import ANSWER_CHARACTERS, Lines, counted, word
from millrace_server.services.group_lag import PartitionLag
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_LINES = 100
"""Made in one go, some 200 us."""
NOTHING = "-"
"""Where a group has committed nothing, a partition has no owner, or it is unknown."""


async def groups(services: Services, context: RequestContext) -> Lines:
    """A line for each group, by name."""
    listed = services.groups.list_groups(context)
    lines = (
        f"group {word(found.group_id)} state {found.state.value} members {found.member_count} "
        f"protocol {word(found.protocol) or NOTHING}"
        for found in listed
    )
    return await _answer(services, lines, count=len(listed), noun="group")


async def lag(services: Services, context: RequestContext, group: str) -> Lines:
    """How far a group is behind, in each partition it has committed for or a member has."""
    found = await services.groups.lag(context, group)
    return await _answer(services, map(_lag_line, found), count=len(found), noun="partition")


def _lag_line(found: PartitionLag) -> str:
    member = NOTHING if found.member_id is None else word(found.member_id)
    return (
        f"topic {word(found.topic)} partition {found.partition} "
        f"committed {_known(found.committed_offset)} "
        f"high watermark {_known(found.high_watermark)} lag {_known(found.lag)} member {member}"
    )


def _known(number: int | None) -> str:
    return NOTHING if number is None else str(number)


async def _answer(services: Services, lines: Iterable[str], *, count: int, noun: str) -> Lines:
    """As many of the lines as an answer holds, and how many there are."""
    answer: Lines = []
    characters_left = ANSWER_CHARACTERS
    remaining = iter(lines)
    while characters_left > 0:
        await services.scheduler.yield_()
        piece = list(islice(remaining, CHUNK_LINES))
        if not piece:
            break
        for line in piece:
            answer.append(line)
            characters_left -= len(line)
            if characters_left <= 0:
                break
    if len(answer) == count:
        return [*answer, f"OK {counted(count, noun)}"]
    return [*answer, f"OK {len(answer)} of {counted(count, noun)}"]
