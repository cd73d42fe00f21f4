"""The manual is true: its code blocks run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace_server.testing import BrokerThread
from tests.page import BLOCK, ROOT, Shell, check, free_port, page_shell, steps, use_port

PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if BLOCK.search(path.read_text("utf-8")) is not None
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_prints_what_stands_there(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    with page_shell(tmp_path) as shell, _broker(shell, text) as port:
        for step in steps(text):
            check(shell, step, port)


@contextmanager
def _broker(shell: Shell, text: str) -> Iterator[str]:
    """A broker for a page, or a free port for the one that the page starts."""
    if re.search(r"^\$ .*\bmillrace serve", text, re.M):
        yield free_port(shell)
        return
    with BrokerThread(topic={"durability": "os"}) as broker:
        use_port(shell, str(broker.port))
        yield str(broker.port)


def test_a_block_that_would_not_run_is_an_error() -> None:
    assert len(PAGES) > 12
    for block in ("```bash\nls\n```", "```text\noutput of nothing\n```", "```\nls\n```"):
        with pytest.raises(ValueError, match="is not run"):
            steps(block)
