"""README's tour, typed line by line into one shell, prints the output in the README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hang_timeout import HANG_TIMEOUT_S
from tests.page import ROOT, Shell, check, free_port, page_shell, steps
from tests.quick_spark import needs_java

README = ROOT / "README.md"


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README.read_text(), re.M | re.S)
    assert found is not None, title
    return found[1]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with page_shell(tmp_path) as shell:
        yield shell


def test_every_line_of_the_tour_prints_the_output_in_the_readme(shell: Shell) -> None:
    port = free_port(shell)
    tour = steps(section("Tour"))
    assert len(tour) > 8
    for step in tour:
        check(shell, step, port)


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@needs_java
def test_every_line_about_spark_prints_the_output_in_the_readme(
    shell: Shell, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    port = free_port(shell)
    # Java and Spark have things to say; they are shown if a line fails.
    stderr = tmp_path / "stderr"
    shell.run(f"exec 2>{stderr}")
    shell.run(f"export {shlex.join(f'{name}={value}' for name, value in quick_spark.items())}")
    tour = steps(section("With Spark"))
    assert len(tour) > 3
    for step in [*steps(section("Tour"))[:2], *tour]:
        try:
            check(shell, step, port)
        except AssertionError as error:
            error.add_note(stderr.read_text())
            raise


def test_the_two_commands_are_each_one_line() -> None:
    readme = README.read_text()
    for name in ("demo", "tests"):
        block = re.search(rf"<!-- ci: {name} -->\n```bash\n(.*?)\n```", readme, re.S)
        assert block is not None
        assert "\n" not in block[1]


def python_blocks() -> list[str]:
    """The python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)


def test_the_python_example_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    printed = re.search(r"^```text\n(.*?)^```", README.read_text(), re.M | re.S)
    assert printed is not None
    script = tmp_path / "example.py"
    script.write_text(python_blocks()[0])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=HANG_TIMEOUT_S, check=True
    )
    assert done.stdout == printed[1]


def test_the_fixture_example_passes(tmp_path: Path) -> None:
    test = tmp_path / "test_example.py"
    test.write_text(python_blocks()[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
