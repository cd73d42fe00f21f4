"""`millrace quota`: quotas of users, client ids and addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.cli.json_shapes import check_shape, documented

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def rows(millrace: Millrace, *flags: str) -> list[str]:
    """The lines of `quota list`, with spaces."""
    return millrace("quota", "list", *flags).stdout.replace("\t", " ").splitlines()


def test_quotas_are_set_listed_and_removed(millrace: Millrace) -> None:
    of_both = ["--user", "ada", "--client-id", "*"]
    done = millrace("quota", "set", *of_both, "producer_byte_rate=1e6", "request_percentage=12.5")
    assert (done.exit_code, done.output) == (0, "")
    assert millrace("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5").exit_code == 0
    assert rows(millrace) == [
        "- - 10.0.0.7 connection_creation_rate 5",
        "ada * - producer_byte_rate 1000000",
        "ada * - request_percentage 12.5",
    ]
    assert len(rows(millrace, "--user", "ada")) == 2
    assert rows(millrace, "--user", "bob") == []
    shown = millrace("quota", "list", "--json").stdout
    check_shape(documented()["quota", "list"], json.loads(shown))
    assert millrace("quota", "remove", *of_both, "request_percentage", "--yes").exit_code == 0
    asked = millrace.process("quota", "remove", *of_both, stdin=b"n\n")
    assert (asked.returncode != 0, b"Remove producer_byte_rate?" in asked.stderr) == (True, True)
    assert millrace.process("quota", "remove", *of_both, stdin=b"y\n").returncode == 0
    assert millrace("quota", "remove", "--ip", "10.0.0.7", "--yes").exit_code == 0
    assert rows(millrace) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "producer_byte_rate=1"], Exit.USAGE, "--user, --client-id, both, or --ip"),
        (
            ["set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"],
            Exit.USAGE,
            "--user, --client-id, both, or --ip",
        ),
        (["set", "--user", "a", "producer_byte_rate"], Exit.USAGE, "it has no ="),
        (["set", "--user", "a", "producer_byte_rate=much"], Exit.USAGE, "'much' is no number"),
        (["set", "--user", "a", "speed=1"], Exit.REFUSED, "'speed' is no quota of such an entity"),
        (["set", "--user", "a", "producer_byte_rate=0"], Exit.REFUSED, "it must be above 0"),
        (["set", "--ip", "here", "connection_creation_rate=1"], Exit.REFUSED, "no IP address"),
        (["remove", "--user", "a", "--yes"], Exit.REFUSED, "it has no quota"),
        (["remove", "--user", "a", "speed"], Exit.REFUSED, "there is no quota speed of it"),
    ],
)
def test_what_no_quota_can_be_is_refused(
    millrace: Millrace, arguments: list[str], code: Exit, said: str
) -> None:
    refused = millrace("quota", *arguments)
    assert refused.exit_code == code
    assert said in " ".join(refused.stderr.replace("│", " ").split())
