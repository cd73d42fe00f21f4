"""The page for users of kcat and rpk: it has every option of theirs, and only flags of ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command_tree import COMMANDS, GROUPS, flags

PAGE = Path(__file__).parents[2] / "docs" / "kcat-and-rpk.md"
STATES = {"same", "different", "not yet", "no need"}
THEIRS = {
    "kcat: general options": "-C -P -L -Q -G -M -t -p -b -D -K -c -m -F -X|list -X|prop=val "
    "-X|schema.registry.prop=val -X|dump -d -q -v -E -V -h",
    "kcat: producer options": "-z -p|-1 -D -K -k -H -l -T -c -Z FILE... -X|transactional.id=ID",
    "kcat: consumer options": "-o|beginning -o|end -o|stored -o|OFFSET -o|-OFFSET -o|s@MS -o|e@MS "
    "-e -f -J -s|key=SERDES -s|value=SERDES -s|SERDES -r -D -K -O -c -Z -u",
    "kcat: metadata and query options": "-t|TOPIC -t|TOPIC:PARTITION:MS",
    "kcat: format": r"%s %S %R %k %K %T %h %t %p %o \n \r \t \xXX \xNNN topic partition offset "
    "tstype ts broker headers key payload key_error payload_error key_schema_id value_schema_id",
    "rpk: flags of every command": "--help --config --config-opt --profile --ignore-profile "
    "--verbose --format",
    "rpk topic": "add-partitions:--num,--force alter-config:--set,--delete,--append,--subtract,"
    "--dry analyze:--batches,--print-all,--print-partition-batch-rate,"
    "--print-partition-batch-size,--print-summary,--print-topics,--regex,--time-range,--timeout "
    "consume:--balancer,--fetch-max-bytes,--fetch-max-wait,--format,--group,--meta-only,--num,"
    "--offset,--partitions,--pretty-print,--print-control-records,--rack,--read-committed,"
    "--regex,--use-schema-registry create:--dry,--partitions,--replicas,--topic-config "
    "delete:--regex describe:--print-all,--print-configs,--print-partitions,--print-summary,"
    "--regex,--stable describe-storage:--human-readable,--print-all,--print-offset,--print-size,"
    "--print-summary,--print-sync list:--detailed,--internal,--regex produce:--acks,"
    "--allow-auto-topic-creation,--compression,--delivery-timeout,--format,--header,--key,"
    "--max-message-bytes,--output-format,--partition,--schema-id,--schema-key-id,--schema-type,"
    "--schema-key-type,--tombstone trim-prefix:--from-file,--no-confirm,--offset,--partitions",
    "rpk group": "list: describe:--print-commits,--print-summary,--print-lag-per-topic,"
    "--instance-ID,--regex delete: offset-delete:--topic,--from-file seek:--to,--to-file,"
    "--to-group,--topics,--allow-new-topics",
}
"""The options of each section, as `kcat -h` and the documentation of rpk have them."""


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    theirs: str
    state: str
    ours: tuple[str, ...]


def sections() -> dict[str, list[Row]]:
    """The rows below each heading that has a table."""
    found = {}
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S):
        rows = []
        for line in re.findall(r"^\| (.*) \|$", text, re.M)[1:]:
            theirs, state, ours, _ = (cell.strip() for cell in f"{line} ".split("| "))
            rows.append(Row(theirs.strip("`"), state, tuple(re.findall(r"`([^`]+)`", ours))))
        found[title] = rows
    return found


def kcat_options(rows: list[Row], expected: str) -> list[str]:
    """The options as `THEIRS` writes them: with the argument where it tells two of them apart."""
    found = []
    for row in rows:
        first, _, rest = row.theirs.partition(" ")
        both = f"{first}|{rest}"
        if both in expected.split():
            found.append(both)
        elif first.startswith("-"):
            found.append(first)
        else:
            found += row.theirs.split()
    return found


def rpk_options(rows: list[Row]) -> list[str]:
    """`COMMAND` and `COMMAND --flag`, by the long name."""
    return [re.sub(r"(^| )-\w, ", r"\1", row.theirs) for row in rows]


def test_every_option_of_kcat_is_in_the_page_once() -> None:
    for title, expected in THEIRS.items():
        if title.startswith("kcat"):
            assert kcat_options(sections()[title], expected) == expected.split(), title


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_every_option_that_kcat_prints_is_in_the_page() -> None:
    printed = subprocess.run(["kcat", "-h"], check=False, capture_output=True, text=True).stdout
    count = 0
    for kind, text in re.findall(
        r"^(General|Producer|Consumer) options:\n(.*?)^\S", printed, re.M | re.S
    ):
        known = {row.theirs.split()[0] for row in sections()[f"kcat: {kind.lower()} options"]}
        for line in re.findall(r"^  (-\S.*?)(?:   |$)", text, re.M):
            options = set(re.findall(r"(?:^|\| )(-\w)", line))
            assert options, line
            assert options <= known, line
            count += len(options)
    assert count > 30


def test_every_command_and_flag_of_rpk_is_in_the_page_once() -> None:
    for title, expected in THEIRS.items():
        if title.startswith("rpk "):
            wanted = []
            for each in expected.split():
                command, _, names = each.partition(":")
                wanted += [command, *(f"{command} {name}" for name in names.split(",") if name)]
            assert rpk_options(sections()[title]) == wanted, title
    title = "rpk: flags of every command"
    assert rpk_options(sections()[title]) == THEIRS[title].split()


def test_the_page_has_no_other_section() -> None:
    assert list(sections()) == list(THEIRS)


@pytest.mark.parametrize("title", THEIRS)
def test_every_command_and_flag_of_ours_exists(title: str) -> None:
    for row in sections()[title]:
        assert row.state in STATES, row
        assert bool(row.ours) == (row.state in ("same", "different")), row
        for text in row.ours:
            words = text.split()
            length = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
            command = tuple(words[:length])
            assert command in COMMANDS or command in GROUPS, row
            assert set(words[length:]) <= flags(command), row


def test_a_flag_that_is_not_there_would_be_found() -> None:
    assert "--offset" in flags(("topic", "trim"))
    assert "--offset" not in flags(("topic", "list"))
