"""What the console changes, if it may: topics, records, and the offsets of groups.

Owns the bodies of these requests and the plan of a reset. A body is an object of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    await _refuse_members(admin, group)
    topic, partition, target = _text(body, "topic"), body.get("partition"), body.get("to")
    described = await admin.describe_topic(topic)
    wheres = [TopicPartition(topic, each.partition) for each in described.partitions]
    if partition is not None:
        wheres = [where for where in wheres if where.partition == partition]
        if not wheres:
            raise InputError(f"partition: {topic} has 0 to {len(described.partitions) - 1}")
    committed = await admin.list_group_offsets(group, wheres)
    moves = await _moves(admin, wheres, target)
    if not body.get("dry_run"):
        for outcome in (await admin.alter_group_offsets(group, moves)).values():
            outcome.unwrap()
    return {
        "group": group,
        "moves": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "committed": committed[where].offset if where in committed else None,
                "to": offset,
            }
            for where, offset in moves.items()
        ],
    }


async def _moves(
    admin: Admin, wheres: list[TopicPartition], target: object
) -> dict[TopicPartition, int]:
    starts = await admin.list_offsets(dict.fromkeys(wheres, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(wheres, "latest"))
    match target:
        case "earliest":
            return {where: starts[where].offset for where in wheres}
        case "latest":
            return {where: ends[where].offset for where in wheres}
        case {"offset": int(offset)}:
            for where in wheres:
                if not starts[where].offset <= offset <= ends[where].offset:
                    raise Refused(
                        f"{where} has offsets from {starts[where].offset} to "
                        f"{ends[where].offset}; give one of them"
                    )
            return dict.fromkeys(wheres, offset)
        case {"time_ms": int(time_ms)} if time_ms >= 0:
            found = await admin.list_offsets(dict.fromkeys(wheres, time_ms))
            return {
                where: found[where].offset if found[where].offset >= 0 else ends[where].offset
                for where in wheres
            }
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
