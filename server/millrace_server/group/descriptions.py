"""Groups as people and tools see them."""

from __future__ import annotations

from millrace_server.group.effects import DescribedMember, GroupDescription, GroupListing
from millrace_server.group.group import Group
from millrace_server.group.states import GroupState


def list_group(group: Group) -> GroupListing:
    """One line of a list of groups."""
    return GroupListing(
        group.name,
        group.protocol_type or "",
        group.state,
        len(group.members),
        _shown_protocol(group),
    )


def describe_group(group: Group) -> GroupDescription:
    """A group with its members; what they say and own only while it is stable, as Kafka does."""
    is_stable = group.state is GroupState.STABLE
    protocol = _shown_protocol(group)
    return GroupDescription(
        group_id=group.name,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=protocol,
        generation=group.generation,
        leader_id=group.leader_id or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def _shown_protocol(group: Group) -> str:
    return (group.protocol or "") if group.state is GroupState.STABLE else ""
