"""What the console changes, if it may: topics, records, and the offsets of groups.

Owns the bodies of these requests. A body is an object of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace._group.offset_reset import NoSuchOffset, Target
from millrace._group_reset import planned_moves
from millrace.admin import Admin
from millrace.errors import GroupNotFound
from millrace.producer import Producer
from millrace.records import TopicPartition
from millrace_console.errors import InputError, Refused
from millrace_console.record_view import parsed_record

DELIVERY_TIMEOUT_MS = 10_000


async def create_topic(admin: Admin, body: Mapping[str, Any]) -> dict[str, Any]:
    """Creates a topic: `topic`, and perhaps `partitions`, `replication_factor`, `configs`."""
    configs = body.get("configs") or {}
    if not isinstance(configs, dict):
        raise InputError("configs: give an object, such as {'retention.ms': '60000'}")
    partitions = await admin.create_topic(
        _text(body, "topic"),
        partitions=_count(body, "partitions"),
        replication_factor=_count(body, "replication_factor"),
        configs={str(name): str(value) for name, value in configs.items()},
    )
    return {"topic": body["topic"], "partitions": partitions}


async def delete_topic(admin: Admin, topic: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Deletes a topic; `confirm` repeats its name."""
    if body.get("confirm") != topic:
        raise Refused(f"confirm: type the name of the topic, {topic}, to delete it")
    await admin.delete_topic(topic)
    return {"topic": topic}


async def produce(
    servers: str, options: Mapping[str, Any], topic: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Sends one record with acks=all; returns where it is."""
    record = parsed_record(body)
    async with Producer(servers, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, **options) as producer:
        receipt = await producer.send(topic, **record)
    return {"partition": receipt.partition, "offset": receipt.offset}


async def reset_offsets(admin: Admin, group: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Moves a group without members, all partitions or none.

    `topic` and perhaps `partition`; `to` is "earliest", "latest", or an object with `offset` or
    `time_ms`. With `dry_run` it says what would be done. Raises `Refused`, `InputError`.
    """
    topic, partition, target = _text(body, "topic"), body.get("partition"), _target(body.get("to"))
    await _refuse_members(admin, group)
    described = await admin.describe_topic(topic)
    wheres = [TopicPartition(topic, each.partition) for each in described.partitions]
    if partition is not None:
        wheres = [where for where in wheres if where.partition == partition]
        if not wheres:
            raise InputError(f"partition: {topic} has 0 to {len(described.partitions) - 1}")
    try:
        moves = await planned_moves(admin, group, wheres, target)
    except NoSuchOffset as error:
        raise Refused(str(error)) from None
    if not body.get("dry_run"):
        outcomes = await admin.alter_group_offsets(group, {each.where: each.to for each in moves})
        for outcome in outcomes.values():
            outcome.unwrap()
    return {
        "group": group,
        "moves": [
            {
                "topic": each.where.topic,
                "partition": each.where.partition,
                "committed": each.committed,
                "to": each.to,
            }
            for each in moves
        ],
    }


def _target(to: object) -> Target:
    match to:
        case "earliest" | "latest":
            return Target(end=to)
        case {"offset": int(offset)}:
            return Target(offset=offset)
        case {"time_ms": int(time_ms)} if time_ms >= 0:
            return Target(time_ms=time_ms)
    raise InputError("to: give 'earliest', 'latest', {'offset': N} or {'time_ms': N}")


async def _refuse_members(admin: Admin, group: str) -> None:
    try:
        found = await admin.describe_group(group)
    except GroupNotFound:
        return  # The first commit creates the group.
    if found.members:
        raise Refused(
            f"group {group} has {len(found.members)} members, which would keep their offsets; "
            "stop them first"
        )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{name}: give a text")
    return value


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise InputError(f"{name}: give a number of 1 or more, or nothing for the default")
    return value
