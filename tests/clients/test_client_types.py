"""What mypy makes of clients in the code of a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """import json
from typing import Any

from millrace import Consumer, Producer
from millrace.sync import Producer as BlockingProducer


def encode(row: dict[str, int]) -> bytes:
    return json.dumps(row).encode()


async def main() -> None:
    plain = Producer("localhost:9092")
    reveal_type(plain)
    plain.send("t", b"value", key=b"key")
    plain.send("t", "text")  # refused
    by_lambda = Producer("localhost:9092", value_serializer=lambda row: json.dumps(row).encode())
    reveal_type(by_lambda)
    by_lambda.send("t", {"a": 1}, key=b"key")
    by_lambda.send("t", {"a": 1}, key="text")  # refused
    by_function = Producer("localhost:9092", value_serializer=encode, key_serializer=str.encode)
    reveal_type(by_function)
    by_function.send("t", {"a": 1}, key="text")
    by_function.send("t", {"a": "b"})  # refused
    given: Producer[str, dict[str, int]] = Producer(
        "localhost:9092", key_serializer=str.encode, value_serializer=lambda row: encode(row)
    )
    given.send_many("t", [{"a": 1}], keys=["text"])
    blocking = BlockingProducer("localhost:9092", value_serializer=lambda row: encode(row))
    reveal_type(blocking)
    blocking.post("t", {"a": 1})
    consumer = Consumer("localhost:9092", "t", value_deserializer=json.loads)
    reveal_type(consumer)


def bare(producer: Producer) -> None:
    producer.send("t", b"value")
    producer.send("t", "text")  # refused
"""


def test_serializers_decide_what_send_takes(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ("--strict", "--cache-dir", str(tmp_path), "--config-file", "")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, program],
        check=False,
        capture_output=True,
        text=True,
    )
    lines = checked.stdout.splitlines()
    refused = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if "# refused" in line}
    errors = {int(line.split(":")[1]) for line in lines if ": error: " in line}
    assert errors == refused, checked.stdout + checked.stderr
    revealed = [line.split('"')[1] for line in lines if "Revealed type" in line]
    assert [name.replace("millrace.", "") for name in revealed] == [
        "producer.Producer[bytes, bytes]",
        "producer.Producer[bytes, Any]",
        "producer.Producer[str, dict[str, int]]",
        "sync.Producer[bytes, Any]",
        "consumer.Consumer[bytes, Any]",
    ]
