"""GROUPS and LAG: consumer groups as lines (wire_spec.md W-8.4).

Owns the lines and what they leave out. An answer is made in pieces, between which others have their
turn, and ends with the line that fills it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from millrace_protocol.errors import ErrorCode, WireError
from millrace_server.api_error import ApiError
from millrace_server.dialects.text.lines import ANSWER_CHARACTERS, Lines, counted, word
from millrace_server.group.effects import GroupDescription
from millrace_server.group.image import GroupOffsets
from millrace_server.group.offsets_topic import OFFSETS_TOPIC
from millrace_server.services.services import Services

CHUNK_LINES = 100
"""Made in one go, some 200 us."""
NOTHING = "-"
"""Where a group has committed nothing, a partition has no owner, or it is unknown."""

Owners = Mapping[str, Mapping[int, str]]
"""Topic to partition to the member that has it."""


async def groups(services: Services) -> Lines:
    """A line for each group, by name."""
    listed = services.groups.listing()
    lines = (
        f"group {word(found.group_id)} state {found.state.value} members {found.member_count} "
        f"protocol {word(found.protocol) or NOTHING}"
        for found in listed
    )
    return await _answer(services, lines, count=len(listed), noun="group")


async def lag(services: Services, group: str) -> Lines:
    """How far a group is behind, in each partition it has committed for or a member has."""
    if not services.cluster.partition_count(OFFSETS_TOPIC):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group!r}")
    coordinator = services.groups.coordinator(group)
    owners = await _owners(services, coordinator.describe(group))
    committed = coordinator.image.of_group(group)
    places = {
        topic: sorted({*committed.get(topic, ()), *owners.get(topic, ())})
        for topic in sorted({*committed, *owners})
    }
    lines = _lag_lines(services, places, committed, owners)
    return await _answer(services, lines, count=sum(map(len, places.values())), noun="partition")


def _lag_lines(
    services: Services, places: Mapping[str, list[int]], committed: GroupOffsets, owners: Owners
) -> Iterator[str]:
    for topic, numbers in places.items():
        for number in numbers:
            stored = committed.get(topic, {}).get(number)
            offset = None if stored is None else stored.offset
            end = _high_watermark(services, topic, number)
            behind = None if offset is None or end is None else end - offset
            member = owners.get(topic, {}).get(number)
            yield (
                f"topic {word(topic)} partition {number} committed {_known(offset)} "
                f"high watermark {_known(end)} lag {_known(behind)} "
                f"member {NOTHING if member is None else word(member)}"
            )


async def _owners(services: Services, described: GroupDescription) -> Owners:
    """What each member of a consumer group has; for groups of other types that is unknown."""
    owners: dict[str, dict[int, str]] = {}
    if described.protocol_type != PROTOCOL_TYPE:
        return owners
    for member in described.members:
        await services.scheduler.yield_()
        try:
            assignment = decode_assignment(member.assignment)
        except WireError:
            continue  # Members may tell each other what they like; empty is: nothing yet.
        for given in assignment.partitions:
            owned = dict.fromkeys(given.partitions, member.member_id)
            owners.setdefault(given.topic, {}).update(owned)
    return owners


def _high_watermark(services: Services, topic: str, number: int) -> int | None:
    try:
        return services.partitions.get(topic, number).high_watermark
    except ApiError:
        return None


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
