"""Hooks of MkDocs: what happens between the Markdown files of the repository and the site.

Owns which files are pages, the parts of pages that come from the code, and the rule that a page
loads nothing from another host. The site has the folders of the repository, so that a link works in
both.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manual import commands, metrics, settings

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FILES = (
    "*.md",
    "docs/**/*.md",
    "docs/**/*.png",
    "deploy/**/*",
    "spark_connector/*.md",
    "benchmarks/*.md",
    "benchmarks/plots/*.svg",
    "examples/*.py",
)
"""The pages, and the files that they link to."""
PARTS: Mapping[str, Callable[[], str]] = {
    "broker-settings": settings.broker_table,
    "limits": settings.limits_table,
    "topic-settings": settings.topic_table,
    "client-settings": settings.client_table,
    "producer-settings": settings.producer_table,
    "consumer-settings": settings.consumer_table,
    "kafka-settings": settings.kafka_table,
    "metrics": metrics.metric_table,
    "producer-metrics": metrics.producer_table,
    "consumer-metrics": metrics.consumer_table,
    "commands": commands.command_sections,
    "exit-codes": commands.exit_code_block,
}
"""What stands for `<!-- from the code: NAME -->` in a page."""

_PART = re.compile(r"<!-- from the code: ([\w-]+) -->")
_OTHER_HOST = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>"
)
log = logging.getLogger("mkdocs.hooks.manual")


def pages() -> Iterator[Path]:
    """The files of the site, without those of the theme."""
    for pattern in FILES:
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.is_file())


def with_parts(markdown: str) -> str:
    """A page with the parts that come from the code. Raises `KeyError` for an unknown one."""
    return _PART.sub(lambda found: PARTS[found[1]](), markdown)


def elsewhere(html: str) -> list[str]:
    """The elements of a page that a browser would load from another host."""
    return _OTHER_HOST.findall(html)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Puts every file where it lies in the repository."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Adds the parts that come from the code."""
    return with_parts(markdown)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Warns, which ends a strict build, if a browser would load something from another host."""
    for element in elsewhere(output):
        log.warning("%s loads from another host: %s", page.file.src_uri, element)
    return output
