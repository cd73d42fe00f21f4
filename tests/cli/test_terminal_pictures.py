"""What a terminal of 80 and of 60 columns shows, kept in `pictures`.

`pytest tests/cli --rewrite-pictures` writes them anew; look at each difference then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

DIRECTORY = Path(__file__).with_name("pictures")
WIDTHS = (80, 60)
ROWS = 80
each_width = pytest.mark.parametrize("columns", WIDTHS)


def check(request: pytest.FixtureRequest, name: str, columns: int, shown: str) -> None:
    """Compares with the picture of this name, or writes it."""
    picture = DIRECTORY / f"{name}-{columns}.txt"
    assert max(map(len, shown.splitlines())) <= columns
    if request.config.getoption("--rewrite-pictures", default=False):
        picture.write_text(shown)
    assert shown == picture.read_text()


def fixed(*arguments: str, columns: int) -> AbstractContextManager[Terminal]:
    """The command line beside a cluster whose values are fixed."""
    command = [sys.executable, "-m", "tests.cli.fixed_cluster", *arguments]
    return Terminal.of(command, {}, columns=columns, rows=ROWS)


@pytest.fixture(scope="module")
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Millrace]:
    """A broker with topics of a shop, whose records and times are fixed."""
    from tests.cli.conftest import Millrace

    millrace = Millrace(request.getfixturevalue("broker").servers)
    lines = tmp_path_factory.mktemp("shop") / "lines"
    lines.write_bytes(b"user-1:/home\nuser-2:/cart\nuser-1:/caf\xc3\xa9\nuser-3:\x1b[31mred\n")
    # Retention would soon delete records of a time that does not change.
    millrace("topic", "create", "shop.clicks", "-p", "12", "-c", "retention.ms=-1")
    millrace("topic", "create", "shop.payments.authorised.by-country-and-hour", "-p", "3")
    flags = ("-K", ":", "-p", "0", "--timestamp", "2026-01-01T00:00:00Z", "-H", "source=web")
    sent = millrace("produce", "shop.clicks", *flags, str(lines))
    assert sent.exit_code == 0, sent.stderr
    yield millrace
    # A worker that steals tests of this module later begins with the same broker again.
    for topic in ("shop.clicks", "shop.payments.authorised.by-country-and-hour"):
        assert millrace("topic", "delete", topic, "--yes").exit_code == 0


@each_width
def test_topic_list(request: pytest.FixtureRequest, shop: Millrace, columns: int) -> None:
    with Terminal.running(shop, "topic", "list", r"^shop\.", columns=columns) as terminal:
        assert terminal.wait() == 0
        check(request, "topic-list", columns, terminal.text())


@each_width
def test_consume(request: pytest.FixtureRequest, shop: Millrace, columns: int) -> None:
    line = r"%t [%p] at offset %o, %T: key %k, headers %h, value %s\n"
    arguments = ("consume", "shop.clicks", "--format", line)
    with Terminal.running(shop, *arguments, columns=columns) as terminal:
        assert terminal.wait() == 0
        check(request, "consume", columns, terminal.text())


@each_width
@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "describe", "hourly-report"),
        ("group", "lag"),
        ("cluster", "info"),
        ("cluster", "status"),
        ("cluster", "logs"),
    ],
)
def test_fixed_cluster(
    request: pytest.FixtureRequest, arguments: tuple[str, ...], columns: int
) -> None:
    with fixed(*arguments, columns=columns) as terminal:
        assert terminal.wait() == 0
        check(request, "-".join(arguments[:2]), columns, terminal.text())


@each_width
def test_produce_with_progress(
    request: pytest.FixtureRequest, tmp_path: Path, columns: int
) -> None:
    """While it reads, and at the end, when the summary has replaced the bar."""
    file = tmp_path / "2-megabytes"
    file.write_bytes(bytes(2_000_000))
    with fixed("--progress", str(file), columns=columns) as terminal:
        terminal.wait_for("1.4/2.0 MB")
        check(request, "produce-while-reading", columns, terminal.text())
        terminal.type(b"\n")
        assert terminal.wait() == 0
        check(request, "produce-at-the-end", columns, terminal.text())
