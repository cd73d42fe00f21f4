"""`--json` of every command: one value in a line, of the documented shape.

Those of `millrace spark` that need Spark are checked in `tests/spark/test_spark_json_output.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.command_tree import COMMANDS, flags
from tests.cli.json_shapes import PAGE, check_shape, documented, exceptions
from tests.page import BLOCK, ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

NEEDS_SPARK = {("spark", "export"), ("spark", "aggregate")}
NEEDS_CLUSTER = {
    ("topic", "elect-leaders"),
    ("broker", "retire"),
    ("cluster", "add-voter"),
    ("cluster", "remove-voter"),
}
"""Checked in `test_cli_cluster_changes.py`."""
NEEDS_USER = {
    ("user", "list"),
    ("acl", "add"),
    ("acl", "list"),
    ("acl", "remove"),
    ("quota", "list"),
}
"""Checked in `test_cli_user.py`, `test_cli_acl.py` and `test_cli_quota.py`."""
NEEDS_BACKUP = {("backup", "create"), ("backup", "verify"), ("restore",)}
"""Checked in `tests/backup/test_backup_commands.py`."""
CASES = {
    ("produce",): "{topic} {lines}",
    ("consume",): "{topic} --count 1",
    ("sql",): 'SELECT\ttopic,\tcount(*)\tAS\trecords\tFROM\t"{topic}"\tGROUP\tBY\t1 --quiet',
    ("dissect",): "{hex}",
    ("simulate",): "{simulated} --seeds 1 --seconds 9 --faults kill --every 2",
    ("topic", "create"): "{topic}-new",
    ("topic", "list"): "{topic}",
    ("topic", "describe"): "{topic}",
    ("topic", "alter"): "{topic} -c retention.ms=86400000",
    ("topic", "trim"): "{topic} --offset 1 --partition 0 --yes",
    ("topic", "reassign"): "{topic} --replicas 0",
    ("topic", "delete"): "{topic} --yes",
    ("group", "list"): "{topic}",
    ("group", "lag"): "{topic}",
    ("group", "describe"): "{topic}",
    ("group", "reset"): "{topic} --to-earliest",
    ("group", "delete-offsets"): "{topic} --topic {topic} --yes",
    ("group", "delete"): "{topic} --yes",
    ("cluster", "info"): "--metrics millrace_connections",
    ("cluster", "status"): "--check",
    ("cluster", "config"): "log_level",
    ("cluster", "logs"): "{topic}",
    ("bench", "produce"): "{topic} -n 5",
    ("bench", "consume"): "{topic}",
    ("bench", "latency"): "{topic} -n 5",
    ("spark", "import"): "{topic}-empty --to {out} --quiet",
}
"""The arguments of each command; a tab is a space within one."""
HELLO = "00000019 4d52 0012 0000 00000007 00026d65 0004746f6f6c 0003312e30"


@pytest.fixture
def place(millrace: Millrace, topic: str, tmp_path: Path) -> dict[str, str]:
    """A topic with two records in partition 0, and a group of its name that has read one."""
    lines, hexadecimal = tmp_path / "lines", tmp_path / "hex"
    lines.write_text("user-1:/home\nuser-2:/cart\n")
    hexadecimal.write_text(HELLO)
    flags = ("-p", "0", "-K", ":", "-H", "source=shop")
    assert millrace("produce", topic, *flags, str(lines)).exit_code == 0
    assert millrace("consume", topic, "-g", topic, "--count", "1").exit_code == 0
    assert millrace("topic", "create", f"{topic}-empty").exit_code == 0
    out = str(tmp_path / "out")
    return {
        "topic": topic,
        "lines": str(lines),
        "hex": str(hexadecimal),
        "out": out,
        "simulated": f"{ROOT}/examples/simulated_service.py:careful",
    }


def test_every_command_is_documented_or_an_exception_with_a_reason() -> None:
    assert set(documented()) == {
        *CASES,
        *NEEDS_SPARK,
        *NEEDS_CLUSTER,
        *NEEDS_USER,
        *NEEDS_BACKUP,
    }
    assert len(BLOCK.findall(PAGE.read_text("utf-8"))) == len(documented())
    assert exceptions().isdisjoint(documented())
    assert {*documented(), *exceptions()} == set(COMMANDS)
    assert {words for words in COMMANDS if {"--json", "-J"} <= flags(words)} == set(documented())


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_json_is_one_line_of_the_documented_shape(
    millrace: Millrace, place: dict[str, str], words: tuple[str, ...]
) -> None:
    arguments = [word.replace("\t", " ") for word in CASES[words].format(**place).split(" ")]
    done = millrace(*words, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found
    check_shape(documented()[words], found)


def test_a_member_and_its_partitions_have_the_documented_shape(
    millrace: Millrace, place: dict[str, str]
) -> None:
    topic = place["topic"]
    with millrace.running("consume", topic, "-g", topic, "--follow") as member:
        assert member.stdout is not None and member.stdout.readline()
        found = json.loads(millrace("group", "describe", topic, "--json").stdout)
    assert found["members"] and found["partitions"]
    check_shape(documented()["group", "describe"], found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ([{"a": 1}], [{"a": 1}, {}]),
        ({"configs": {"x": {"value": "1"}}}, {"configs": {"y": {"value": 1}}}),
    ],
)
def test_another_shape_is_found(wanted: object, found: object) -> None:
    with pytest.raises(AssertionError):
        check_shape(wanted, found)
