"""What the paths of the console answer, with a real broker behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from millrace import Admin, Producer
from millrace_server.testing import Broker
from tests.console.running_console import RunningConsole
from tests.hang_timeout import HANG_TIMEOUT_S


async def test_the_printed_address_logs_in_and_the_page_loads_its_modules(
    console: RunningConsole,
) -> None:
    assert (await console.http.get("/")).headers["location"] == "/login"
    await console.log_in()
    page = await console.http.get("/")
    assert '<script type="module" src="/static/main.js">' in page.text
    module = await console.http.get("/static/main.js")
    assert module.headers["content-type"].startswith("text/javascript")


async def test_the_page_of_the_cluster_has_brokers_and_quorum(console: RunningConsole) -> None:
    await console.log_in()
    found = await console.read("cluster")
    (broker,) = found["brokers"]
    assert found["errors"] == []
    assert (found["controller"], found["topics"], found["partitions"]) == (0, 1, 2)
    assert broker["node_id"] == 0 and broker["version"] and broker["uptime_ms"] >= 0
    assert [each["voter"] for each in found["quorum"]] == [True]
    assert (found["unhealthy_count"], found["unhealthy"]) == (0, [])
    configs = (await console.read("brokers/0/configs"))["configs"]
    assert {"listen", "data"} <= {each["name"] for each in configs}


async def test_the_pages_of_topics_have_offsets_sizes_and_settings(
    console: RunningConsole,
) -> None:
    await console.log_in()
    (row,) = (await console.read("topics"))["topics"]
    assert (row["topic"], row["partitions"], row["offsets"]) == ("clicks", 2, 6)
    assert row["size_bytes"] > 0
    found = await console.read("topics/clicks")
    ends = [(each["leader"], each["isr"], each["end"]) for each in found["partition_list"]]
    assert ends == [(0, [0], 3), (0, [0], 3)]
    assert "retention.ms" in {each["name"] for each in found["configs"]}


async def test_rates_come_from_successive_reads(broker: Broker, console: RunningConsole) -> None:
    await console.log_in()
    await console.read("topics")
    async with Producer(broker.servers) as producer:
        await producer.send_many("clicks", [b"x"] * 1000, partition=0)
    series = "history?series=records%20clicks"
    course = await console.read_until(series, lambda found: any(found["values"]))
    assert len(course["times_ms"]) == len(course["values"]) >= 2
    assert (await console.read("history?series=unknown")) == {"times_ms": [], "values": []}


async def test_the_pages_of_groups_have_lag(console: RunningConsole) -> None:
    await console.log_in()
    (row,) = (await console.read("groups"))["groups"]
    assert (row["group"], row["state"], row["lag"]) == ("readers", "Empty", 2)
    found = await console.read("groups/readers")
    assert found["partitions"] == [
        {
            "topic": "clicks",
            "partition": 0,
            "committed": 1,
            "end": 3,
            "lag": 2,
            "member": None,
        }
    ]
    course = await console.read("history?series=lag%20readers")
    assert course["values"][-1] == 2


async def test_a_record_has_its_hex_and_its_batch_dissected(console: RunningConsole) -> None:
    await console.log_in()
    found = await console.read("topics/clicks/records/0/1")
    assert found["value"] == {
        "size": 8,
        "cut": False,
        "text": '{"n": 1}',
        "json": '{\n  "n": 1\n}',
    }
    assert found["value_hex"][0].startswith("00000000  7b 22 6e 22")
    assert any("offsets 1 to 1" in line for line in found["batch"])
    for path in ("0/3", "7/0"):
        answer = await console.http.get(f"/api/topics/clicks/records/{path}")
        assert answer.status_code == 404


async def test_a_tail_shows_a_record_that_is_acked_after_it_is_ready(
    broker: Broker, console: RunningConsole
) -> None:
    await console.log_in()
    async with console.tail("clicks") as events, Producer(broker.servers) as producer:
        assert await anext(events) == ("ready", None)
        await producer.send("clicks", b"now", partition=1)
        name, records = await anext(events)
    assert name == "records"
    assert [(each["offset"], each["value"]["text"]) for each in records] == [(3, "now")]


async def test_a_tail_filters_by_partition_text_and_header(console: RunningConsole) -> None:
    await console.log_in()
    assert await _values(console, "start=earliest&text=plain&partition=1", 3) == [
        "plain 0",
        "plain 1",
        "plain 2",
    ]
    assert await _values(console, "start=earliest&header=source=te&text=2", 1) == ['{"n": 2}']
    assert await _values(console, "partition=0&offset=2", 1) == ['{"n": 2}']
    assert await _values(console, "partition=0&time_ms=1", 3) == [
        f'{{"n": {number}}}' for number in range(3)
    ]


async def _values(console: RunningConsole, query: str, count: int) -> list[str]:
    found: list[Any] = []
    async with asyncio.timeout(HANG_TIMEOUT_S), console.tail("clicks", query) as events:
        async for name, data in events:
            found += data if name == "records" else []
            if len(found) >= count:
                break
    return [each["value"]["text"] for each in found]


async def test_a_topic_is_created_filled_and_deleted(changing_console: RunningConsole) -> None:
    console = changing_console
    token = await console.log_in()
    made = await console.change("topics", {"topic": "new", "partitions": 3}, token)
    assert made.json() == {"topic": "new", "partitions": 3}
    body = {"key": "k", "value": "v", "partition": 2, "headers": {"a": "b"}}
    sent = await console.change("topics/new/records", body, token)
    assert sent.json() == {"partition": 2, "offset": 0}
    unsure = await console.change("topics/new/delete", {"confirm": "old"}, token)
    assert unsure.status_code == 409
    gone = await console.change("topics/new/delete", {"confirm": "new"}, token)
    assert gone.status_code == 200
    await console.read_until("cluster", lambda found: found["topics"] == 1)


async def test_offsets_are_reset_after_a_dry_run(
    broker: Broker, changing_console: RunningConsole
) -> None:
    console = changing_console
    token = await console.log_in()
    body = {"topic": "clicks", "partition": 0, "to": "latest"}
    planned = await console.change("groups/readers/offsets", {**body, "dry_run": True}, token)
    move = {"topic": "clicks", "partition": 0, "committed": 1, "to": 3}
    assert planned.json()["moves"] == [move]
    async with Admin(broker.servers) as admin:
        assert (await admin.list_group_offsets("readers"))[("clicks", 0)].offset == 1  # type: ignore[index]
        done = await console.change("groups/readers/offsets", body, token)
        assert done.json()["moves"] == [move]
        assert (await admin.list_group_offsets("readers"))[("clicks", 0)].offset == 3  # type: ignore[index]
    await console.read_until("groups/readers", lambda found: found["lag"] == 0)
    beyond = await console.change("groups/readers/offsets", {**body, "to": {"offset": 9}}, token)
    assert beyond.status_code == 409 and "from 0 to 3" in beyond.json()["error"]
    later = {"time_ms": 9_999_999_999_999}
    at_time = await console.change("groups/readers/offsets", {**body, "to": later}, token)
    assert at_time.json()["moves"] == [{**move, "committed": 3}]
    unknown = await console.change("groups/readers/offsets", {**body, "to": "middle"}, token)
    assert unknown.status_code == 400 and "'earliest'" in unknown.json()["error"]


async def test_a_console_outlives_its_broker(broker: Broker, console: RunningConsole) -> None:
    await console.log_in()
    await console.read("cluster")
    await broker.stop()
    await console.read_until("cluster", lambda found: found["errors"])
    await broker.start()
    found = await console.read_until("cluster", lambda found: not found["errors"])
    assert found["topics"] == 1


async def test_the_end_of_a_console_ends_its_tails(console: RunningConsole) -> None:
    await console.log_in()
    async with console.tail("clicks") as events:
        assert await anext(events) == ("ready", None)
        console.serving.cancel()
        assert [each async for each in events] == [("end", None)]
