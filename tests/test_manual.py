"""The manual is true: its blocks run, its references are complete, and its links have targets.

A strict build of the site checks its links and anchors. What a build does not see is checked beside
it.
"""

from __future__ import annotations

import dataclasses
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from typer.testing import CliRunner

import manual.markdown
import manual.settings
import millrace
import millrace.errors
import millrace.sync
from manual import site
from millrace.config import ClientConfig, ConsumerConfig, ProducerConfig
from millrace_cli.main import app_for
from millrace_server.config import BrokerConfig
from millrace_server.config_sources import load
from millrace_server.limits import Limits
from millrace_server.testing import BrokerThread
from millrace_server.topic_config import TOPIC_CONFIG_KEYS
from tests.page import BLOCK, PORTS, ROOT, Shell, check, free_port, page_shell, steps, use_port

SHAPES = ROOT / "docs" / "json-output.md"
"""Its blocks are shapes: `tests/cli/test_json_output.py` compares them with the output."""
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path != SHAPES and BLOCK.search(path.read_text("utf-8")) is not None
]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_prints_what_stands_there(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    with page_shell(tmp_path) as shell, _broker(shell, text) as port:
        for step in steps(text):
            check(shell, step, port)


@contextmanager
def _broker(shell: Shell, text: str) -> Iterator[int]:
    """A broker for a page, or free ports for those that the page starts."""
    if re.search(r"^\$ .*\bmillrace (cluster start|serve)", text, re.M):
        yield free_port(shell, ports=PORTS)
        return
    with BrokerThread(topic={"durability": "os"}) as broker:
        use_port(shell, broker.port)
        yield broker.port


def test_a_block_that_would_not_run_is_an_error() -> None:
    assert len(PAGES) > 15
    for block in ("```bash\nls\n```", "```text\noutput of nothing\n```", "```\nls\n```"):
        with pytest.raises(ValueError, match="is not run"):
            steps(block)


def built(name: str) -> str:
    """A page of the reference, with what a build puts into it."""
    return site.with_parts((REFERENCE / name).read_text("utf-8"))


def rows(text: str) -> dict[str, str]:
    """The last cells of all tables, by the names in the first ones."""
    found = re.findall(r"^\| (`.*?) \| (?:.* \| )?(.*) \|$", text, re.M)
    return {name: last for names, last in found for name in re.findall(r"`([^`]+)`", names)}


def test_every_setting_of_a_broker_is_in_the_reference() -> None:
    meanings = rows(built("settings.md"))
    not_settings = {"topic", "limits", "sources"}
    names = {field.name for field in dataclasses.fields(BrokerConfig)} - not_settings
    names |= {f"limits.{field.name}" for field in dataclasses.fields(Limits)}
    names |= set(TOPIC_CONFIG_KEYS)
    assert [name for name in sorted(names) if not meanings.get(name)] == []


def test_every_environment_variable_in_the_reference_sets_what_it_says() -> None:
    row = re.compile(r"^\| `([\w.]+)`<br>`(MILLRACE_\w+)`[^|]*\| (?:`([^`]*)`|empty)", re.M)
    found = row.findall(built("settings.md"))
    assert len(found) > 50
    for name, variable, default in found:
        config = load(toml=None, toml_name="", environment={variable: default}, flags={})
        key = f"topic.{name}" if name in TOPIC_CONFIG_KEYS else name
        assert config.sources == {key: "environment"}, variable
        # A default that the table shows changes nothing.
        assert dataclasses.replace(config, topic={}) == BrokerConfig(), variable


@pytest.mark.parametrize(
    ("part", "config", "shared"),
    [
        ("client-settings", ClientConfig, None),
        ("producer-settings", ProducerConfig, ClientConfig),
        ("consumer-settings", ConsumerConfig, ClientConfig),
    ],
)
def test_every_setting_of_a_client_is_in_the_reference(
    part: str, config: type[ClientConfig], shared: type[ClientConfig] | None
) -> None:
    text = site.PARTS[part]()
    assert text in built("settings.md")
    meanings = rows(text)
    names = {field.name for field in dataclasses.fields(config)}
    names -= set() if shared is None else {field.name for field in dataclasses.fields(shared)}
    assert names == {name for name, meaning in meanings.items() if meaning}


def test_every_command_and_every_flag_is_in_the_reference() -> None:
    page = built("commands.md")
    sections = dict(re.findall(r"^#+ (millrace.*)\n((?:.*\n)*?)(?=^#+ |\Z)", page, re.M))
    waiting, seen = ["millrace"], set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        words = [*path.split()[1:], "--help"]
        shown = CliRunner().invoke(app_for(words), words, prog_name="millrace").output
        options, _, children = shown.partition("\nCommands:\n")
        waiting += [f"{path} {name}" for name in re.findall(r"^  (\S+)  ", children, re.M)]
        assert path in sections
        assert flags(options.partition("\nOptions:\n")[2]) <= flags(sections[path]), path
    assert seen == set(sections)


def flags(text: str) -> set[str]:
    """The long flags that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def test_every_method_in_the_table_of_kafka_clients_is_there() -> None:
    page = (ROOT / "docs" / "how-to" / "coming-from-kafka.md").read_text("utf-8")
    rows_of_table = page.partition("## Side by side")[2].partition("\n\nPartitions")[0]
    columns = (
        {"p": aiokafka.AIOKafkaProducer, "c": aiokafka.AIOKafkaConsumer},
        {"p": confluent_kafka.Producer, "c": confluent_kafka.Consumer},
        {"p": millrace.Producer, "consumer": millrace.Consumer, "record": millrace.Record},
    )
    counts = [0, 0, 0]
    for row in rows_of_table.strip().splitlines()[2:]:
        for index, (text, classes) in enumerate(zip(row.split("|")[1:4], columns, strict=True)):
            for name, attribute in re.findall(r"\b(\w+)\.(\w+)", text):
                if name in classes:
                    assert hasattr(classes[name], attribute), text
                    counts[index] += 1
    assert min(counts) > 10


def test_every_public_name_is_in_the_reference() -> None:
    documented = set(re.findall(r"^::: ([\w.]+)$", built("api.md"), re.M))
    assert "millrace.errors" in documented
    public = {f"millrace.{name}" for name in millrace.__all__} - {"millrace.MillraceError"}
    public |= {f"millrace.sync.{name}" for name in millrace.sync.__all__}
    public |= {f"millrace_server.testing.{name}" for name in ("Broker", "BrokerThread")}
    public |= {f"millrace_simulation.{name}" for name in ("Simulation", "Service", "simulate")}
    assert public - documented == set()


@pytest.mark.timeout(1_200)
def test_the_manual_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    # Without the theme's note about its own successor.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "reference" / "settings" / "index.html").exists()


def test_a_page_that_loads_from_another_host_is_found() -> None:
    other = '<link rel="stylesheet" href="https://fonts.example.org/css">'
    assert site.elsewhere(f'<a href="https://example.org">x</a>{other}') == [other]
    assert site.elsewhere('<script src=//example.org/a.js></script><img src="a.png">') != []


LINK = re.compile(r"\]\(([^()\s]+)\)")


def test_every_relative_link_between_documents_has_its_target() -> None:
    documents = [path for path in site.pages() if path.suffix == ".md"]
    assert ROOT / "README.md" in documents
    broken = []
    for path in documents:
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
        for link in LINK.findall(text):
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", target):
                continue
            there = (path.parent / target).resolve() if target else path
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as a code host makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"([\w/.-]+\.md)$", navigation, re.M))
    there = {path.relative_to(ROOT).as_posix() for path in site.pages() if path.suffix == ".md"}
    assert named == there


def test_the_examples_in_docstrings_are_true() -> None:
    for module in (manual.markdown, manual.settings):
        failed, attempted = doctest.testmod(module)
        assert (failed, attempted > 0) == (0, True)
